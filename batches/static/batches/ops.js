/* What HTML alone cannot do. Everything is delegated from the document, so that parts swapped
   in later work too. No inline handlers: the page's policy forbids them. */
"use strict";
{
  const meta = document.querySelector('meta[name="server-now"]');
  const skew = meta ? Date.now() - Date.parse(meta.content) : 0;

  /* --- menu of the phone --- */
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-menu]");
    if (button) {
      const open = document.getElementById("console-nav").classList.toggle("open");
      button.setAttribute("aria-expanded", String(open));
    }
    for (const menu of document.querySelectorAll("details.user-menu[open]")) {
      if (!menu.contains(event.target)) menu.open = false;
    }
  });
  document.addEventListener("keydown", (event) => {
    if (event.key !== "Escape") return;
    for (const menu of document.querySelectorAll("details.user-menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
  });

  /* --- a long name is cut to two lines, and shown whole on request --- */
  function clampNames() {
    for (const button of document.querySelectorAll("[data-unclamp]")) {
      const name = document.getElementById(button.getAttribute("aria-controls"));
      button.hidden = !name.classList.contains("whole") && name.scrollHeight <= name.clientHeight + 1;
    }
  }
  document.addEventListener("click", (event) => {
    const button = event.target.closest("[data-unclamp]");
    if (!button) return;
    const whole = document.getElementById(button.getAttribute("aria-controls")).classList.toggle("whole");
    button.setAttribute("aria-expanded", String(whole));
  });
  window.addEventListener("resize", clampNames);
  document.addEventListener("htmx:afterSettle", clampNames);
  clampNames();

  /* --- of many tabs the chosen one is in sight --- */
  for (const tab of document.querySelectorAll(".tabs [aria-current]")) {
    const bar = tab.parentElement;
    bar.scrollLeft = tab.offsetLeft - bar.offsetLeft - (bar.clientWidth - tab.offsetWidth) / 2;
  }

  /* --- "3 seconds ago" goes on counting between two polls --- */
  const pattern = (unit) => meta?.dataset[unit] || "%s";
  function ago(seconds) {
    if (seconds < 60) return pattern("seconds").replace("%s", Math.max(0, Math.floor(seconds)));
    if (seconds < 3600) return pattern("minutes").replace("%s", Math.floor(seconds / 60));
    if (seconds < 86400) return pattern("hours").replace("%s", Math.floor(seconds / 3600));
    return pattern("days").replace("%s", Math.floor(seconds / 86400));
  }
  function tick() {
    if (document.hidden || selecting(document.body)) return;
    const now = Date.now() - skew;
    for (const time of document.querySelectorAll("time[data-ago]")) {
      const text = ago((now - Date.parse(time.dateTime)) / 1000);
      if (time.textContent !== text) time.textContent = text;
    }
  }
  setInterval(tick, 1000);

  /* --- forms: sent once, with a word about it --- */
  document.addEventListener("submit", (event) => {
    const form = event.target;
    if (form.method !== "post" || event.defaultPrevented) return;
    if (form.dataset.sent) {
      event.preventDefault();
      return;
    }
    form.dataset.sent = "1";
    const button = event.submitter;
    if (button) {
      button.setAttribute("aria-busy", "true");
      if (button.dataset.busy) button.querySelector("span")?.replaceChildren(button.dataset.busy);
    }
  });
  /* Back from the next page: the forms work again. */
  window.addEventListener("pageshow", (event) => {
    if (!event.persisted) return;
    for (const form of document.querySelectorAll("form[data-sent]")) delete form.dataset.sent;
    for (const busy of document.querySelectorAll("[aria-busy]")) busy.removeAttribute("aria-busy");
  });

  /* --- dialogs: a link whose page also works on its own --- */
  document.addEventListener("htmx:afterSwap", (event) => {
    if (event.target.id !== "dialog-slot") return;
    const dialog = event.target.querySelector("dialog");
    if (!dialog) return;
    prepare(dialog);
    dialog.showModal();
  });
  /* Closed, also with Escape: gone, and its numbers are no longer asked for. */
  document.addEventListener("close", (event) => event.target.closest("#dialog-slot")?.replaceChildren(), true);
  document.addEventListener("click", (event) => {
    const dismiss = event.target.closest("[data-dismiss]");
    if (dismiss && dismiss.closest("dialog")) {
      event.preventDefault();
      dismiss.closest("dialog").close();
    }
  });
  /* A name that must be typed exactly. */
  function prepare(root) {
    for (const input of root.querySelectorAll("[data-must-equal]")) {
      const check = () =>
        input.setCustomValidity(input.value === input.dataset.mustEqual ? "" : input.dataset.hint || "!");
      input.addEventListener("input", check);
      check();
    }
  }
  prepare(document);

  /* --- polling --- */
  function selecting(element) {
    const selection = document.getSelection();
    return Boolean(selection && !selection.isCollapsed && element.contains(selection.anchorNode));
  }
  document.addEventListener("htmx:beforeRequest", (event) => {
    const polled = event.detail.elt;
    if (polled.dataset.poll === undefined) return;
    if (document.hidden || selecting(polled)) event.preventDefault();
  });
  /* What somebody unfolded stays unfolded. */
  let unfolded = [];
  document.addEventListener("htmx:beforeSwap", (event) => {
    const within = event.detail.target.querySelectorAll?.("details[id][open]") ?? [];
    unfolded = Array.from(within, (details) => details.id);
  });
  document.addEventListener("htmx:afterSwap", () => {
    for (const id of unfolded.splice(0)) document.getElementById(id)?.setAttribute("open", "");
  });
  /* What somebody is typing is not replaced under their hands. */
  document.addEventListener("htmx:oobBeforeSwap", (event) => {
    for (const input of event.detail.target.querySelectorAll("input:not([type=hidden])")) {
      if (input === document.activeElement || input.value !== input.defaultValue) event.detail.shouldSwap = false;
    }
  });
  const offline = document.querySelector("[data-offline]");
  const stale = (yes) => {
    if (offline && offline.hidden === yes) offline.hidden = !yes;
  };
  for (const name of ["htmx:sendError", "htmx:timeout"]) {
    document.addEventListener(name, () => stale(true));
  }
  document.addEventListener("htmx:afterRequest", (event) => {
    const status = event.detail.xhr?.status || 0;
    if (status >= 500) stale(true);
    else if (status > 0) stale(false);
  });

  /* --- only the chosen action's parameters --- */
  function chooseAction() {
    const chosen = document.querySelector('input[name="action"]:checked');
    for (const part of document.querySelectorAll("fieldset[data-action]")) {
      part.hidden = part.disabled = Boolean(chosen) && part.dataset.action !== chosen.value;
    }
  }
  document.addEventListener("change", (event) => {
    if (event.target.name === "action") chooseAction();
    if (event.target.matches("[data-check-all]")) {
      const boxes = event.target.closest("form").querySelectorAll("[data-check]");
      for (const box of boxes) box.checked = event.target.checked;
    }
    if (event.target.matches("[data-check], [data-check-all]")) countChecked(event.target.form);
    if (event.target.matches("[data-submit-on-change]")) event.target.form.requestSubmit();
    if (event.target.matches("[data-max-bytes]")) checkSize(event.target);
  });
  function countChecked(form) {
    const count = form.querySelectorAll("[data-check]:checked").length;
    for (const place of form.querySelectorAll("[data-checked-count]")) place.textContent = count;
    for (const button of form.querySelectorAll("[data-needs-checked]")) button.disabled = count === 0;
  }
  for (const form of document.querySelectorAll("form[data-checks]")) countChecked(form);
  function checkSize(input) {
    const file = input.files[0];
    const place = input.parentElement.querySelector("[data-file-name]");
    if (place) place.textContent = file ? file.name : place.dataset.none;
    const tooBig = file && file.size > Number(input.dataset.maxBytes);
    input.setCustomValidity(tooBig ? input.dataset.tooBig : "");
    if (tooBig) input.reportValidity();
  }
  chooseAction();
}
