/* What was typed into the form of a new job survives a sign-in that expired meanwhile.

   Kept in this tab alone, for the person who typed it, and only what a person types: no file,
   nothing hidden, no password. Loaded on every page, since the pages after the form tell what
   became of it: a job's page, that it was taken; the sign-in page, that it was not. */
"use strict";
{
  const KEY = "job-draft";
  const form = document.querySelector("form[data-draft]");

  function read() {
    try {
      return JSON.parse(sessionStorage.getItem(KEY));
    } catch {
      return null;
    }
  }
  function write(draft) {
    try {
      if (draft) sessionStorage.setItem(KEY, JSON.stringify(draft));
      else sessionStorage.removeItem(KEY);
    } catch {
      /* no room, or not allowed: the form works without */
    }
  }
  function change(values) {
    const draft = read();
    if (draft) write({ ...draft, ...values });
  }

  /* signing out on purpose leaves nothing to the next person */
  document.addEventListener("submit", (event) => {
    if (event.target.id === "logout-form") write(null);
  });
  if (document.getElementById("login-form")) change({ sent: false, askedToSignIn: true });
  if (document.getElementById("job-head") && read()?.sent) write(null);

  if (form) start(form);

  function start(form) {
    const note = document.querySelector("[data-draft-note]");
    const source = new URLSearchParams(location.search).get("from") || "";
    /* a form that comes filled (from a job, or back with its faults) stays as it is */
    const draft = read();
    const own = draft && draft.owner === form.dataset.draft;
    const template = form.dataset.draftTemplate !== undefined;
    const filled = template || form.dataset.draftPosted !== undefined;
    /* this very form, filled from the same job, lost to the sign-in page a moment ago */
    const lost = own && template && draft.askedToSignIn && draft.source === source;
    if (draft && !own) write(null);
    if (own && (!filled || lost) && put(form, draft.values)) note.hidden = false;
    if (own) change({ sent: false, askedToSignIn: false });

    form.addEventListener("input", () => keep(form, source));
    form.addEventListener("change", () => keep(form, source));
    form.addEventListener("submit", (event) => {
      if (!event.defaultPrevented) {
        keep(form, source);
        change({ sent: true });
      }
    });
    document.querySelector("[data-draft-discard]").addEventListener("click", () => {
      form.reset();
      tellOthers(form);
      note.hidden = true;
      write(null);
      form.querySelector('input[name="action"]:checked')?.focus();
    });
  }

  function fields(form) {
    return Array.from(form.elements).filter(
      (field) => field.name && field.matches("textarea, select, input:not([type=file], [type=hidden], [type=password])")
    );
  }
  function isChoice(field) {
    return field.type === "radio" || field.type === "checkbox";
  }

  function keep(form, source) {
    const values = {};
    for (const field of fields(form)) {
      if (!isChoice(field)) values[field.name] = field.value;
      else if (field.checked) values[field.name] = field.value;
    }
    write({ owner: form.dataset.draft, source, values });
  }

  /* Whether anything on the form became another. */
  function put(form, values) {
    let changed = false;
    for (const field of fields(form)) {
      const value = values[field.name];
      if (value === undefined) continue;
      if (isChoice(field)) {
        if (field.checked === (field.value === value)) continue;
        field.checked = field.value === value;
      } else {
        if (field.value === value) continue;
        field.value = value;
        const folded = field.closest("details");
        if (folded) folded.open = true;
      }
      changed = true;
    }
    if (changed) tellOthers(form);
    return changed;
  }
  /* the parts of the page that follow what is chosen */
  function tellOthers(form) {
    for (const field of form.querySelectorAll('input[name="action"]:checked, input[type="file"]')) {
      field.dispatchEvent(new Event("change", { bubbles: true }));
    }
  }
}
