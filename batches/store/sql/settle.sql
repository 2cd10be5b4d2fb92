-- Recording what calls came to. Accepted from any owner while the item still waits for that
-- very call's answer: a late truth is a truth. Repeating a settle changes nothing.
--
-- Rows are looked up one by one, by their keys, whatever the planner knows of the tables: laterals
-- that it cannot pull up, and `= any(array[x])` where an equality would be one more join to plan.
--
-- Columns that are the same for every plain success may come as empty arrays: `unnest` fills them
-- up with nulls, which stand for what a success has there.

-- name: settle
-- An item in flight is counted in `shard.pending`, one in doubt in `submitted` and `in_doubt`;
-- the deltas below are the difference between where it was counted and where it goes.
with t as materialized (select clock_timestamp() as at),
r as materialized (
  select item_id, call_id, fate, category, code, message, msg_id, coalesce(wait, 0) as wait,
    coalesce(counted, true) as counted, coalesce(refund, false) as refund,
    coalesce(bad, false) as bad, coalesce(reached, false) as reached
  from unnest(
    %(items)s::bigint[], %(calls)s::bigint[], %(fates)s::text[], %(categories)s::text[],
    %(codes)s::text[], %(messages)s::text[], %(msg_ids)s::text[], %(waits)s::float8[],
    %(counted)s::bool[], %(refunds)s::bool[], %(bads)s::bool[], %(reached)s::bool[]
  ) as r(item_id, call_id, fate, category, code, message, msg_id, wait, counted, refund, bad,
    reached)
),
cur as materialized (
  select i.*, r.fate, r.category, r.code, r.message, r.msg_id, r.wait, r.counted, r.refund, r.bad,
    r.reached
  from r
  cross join lateral (
    select i.id, i.shard_id, i.job_id, i.seq, i.submitted_at, i.in_doubt_at is not null as was_doubt
    from batches_item i
    where i.id = r.item_id and i.call_id = r.call_id and i.state = 'submitted'
      and i.accepted_at is null and not (r.fate = 'doubt' and i.in_doubt_at is not null)
    for no key update of i
  ) i
),
-- a refusal that arrives after its job was cancelled leaves nothing to send
judged as materialized (
  select c.*, case
      when c.fate = 'retry' then case when j.status = 'cancelled' then 'abandoned' else 'pending' end
      when c.fate in ('accepted', 'doubt') then 'submitted'
      else c.fate
    end as state
  from cur c join batches_job j on j.id = c.job_id
),
item as (
  update batches_item i
  set state = c.state,
    attempt = i.attempt - case when c.counted then 0 else 1 end,
    due_at = case when c.state = 'pending' and c.wait > 0
      then t.at + c.wait * interval '1 second' end,
    accepted_at = case when c.fate = 'accepted' then t.at end,
    in_doubt_at = case when c.fate = 'doubt' then t.at end,
    settled_at = case when c.state in ('confirmed', 'failed', 'abandoned') then t.at end,
    msg_id = coalesce(c.msg_id, i.msg_id),
    category = case when c.fate in ('confirmed', 'accepted') then null else c.category end,
    code = case when c.fate in ('confirmed', 'accepted') then null else c.code end,
    message = case when c.fate in ('confirmed', 'accepted') then null else c.message end
  from judged c, t
  where i.id = any(array[c.id])
),
delta as materialized (
  select shard_id, min(job_id) as job_id,
    sum(case when was_doubt then (state = 'pending')::int
      else -(state <> 'pending')::int end) as pending,
    sum(case when was_doubt then -(state <> 'submitted')::int
      else (state = 'submitted')::int end) as submitted,
    sum((fate = 'doubt')::int - was_doubt::int) as in_doubt,
    sum((state = 'confirmed')::int) as confirmed,
    sum((state = 'failed')::int) as failed,
    sum((state = 'abandoned')::int) as abandoned,
    max(case when state <> 'pending' then seq end) as seq,
    sum(bad::int) as bad,
    max(submitted_at) filter (where fate in ('confirmed', 'accepted')) as good_at,
    max(submitted_at) filter (where bad) as bad_at
  from judged group by shard_id
),
-- in id order, so that two settles or a settle and a verb cannot wait for each other
ordered as materialized (
  select d.*,
    s.status in ('pending', 'running') and case
      -- half-open: what was sent before the resume says nothing of the time after it
      when s.probe_from is null
      then d.good_at is null and d.bad > 0 and s.bad_streak + d.bad >= j.breaker_streak
      else d.bad_at > s.probe_from and not coalesce(d.good_at > s.probe_from, false)
    end as trips
  from delta d
  join batches_shard s on s.id = d.shard_id
  join batches_job j on j.id = d.job_id
  order by s.id
  for no key update of s
),
shard as (
  update batches_shard s
  set pending = s.pending + d.pending,
    submitted = s.submitted + d.submitted,
    in_doubt = s.in_doubt + d.in_doubt,
    confirmed = s.confirmed + d.confirmed,
    failed = s.failed + d.failed,
    abandoned = s.abandoned + d.abandoned,
    cursor = greatest(s.cursor, d.seq),
    last_advanced_at = case when d.seq is null then s.last_advanced_at else t.at end,
    bad_streak = case when d.good_at is not null then 0 else s.bad_streak + d.bad end,
    probe_from = case when d.good_at > s.probe_from then null else s.probe_from end,
    status = case
      when s.status in ('pending', 'running', 'paused')
        and s.pending + d.pending = 0 and s.submitted + d.submitted = 0
      then case when s.failed + d.failed = s.total then 'failed' else 'completed' end
      when d.trips then 'paused'
      else s.status
    end,
    reason = case
      when s.pending + d.pending = 0 and s.submitted + d.submitted = 0 then ''
      when d.trips then 'breaker'
      else s.reason
    end
  from ordered d, t
  where s.id = any(array[d.shard_id])
  returning s.job_id, s.ordinal, s.account_id, s.pending, s.bad_streak,
    d.trips and s.status = 'paused' as tripped
),
-- the breaker's line in the timeline is written with what it tells of
trip as (
  insert into batches_event (at, kind, job_id, shard_ordinal, account_id, actor_name, reason, data)
  select t.at, 'shard.tripped', s.job_id, s.ordinal, s.account_id, '', '',
    jsonb_build_object('bad_streak', s.bad_streak)
  from shard s, t where s.tripped
),
minute as (
  insert into batches_jobminute
    (job_id, minute, sent, confirmed, failed, in_doubt, returned, judged, bad)
  select job_id, date_trunc('minute', t.at),
    sum((not was_doubt and not refund)::int), sum((state = 'confirmed')::int), sum((state = 'failed')::int),
    sum((fate = 'doubt')::int), sum((refund and reached and not was_doubt)::int),
    sum((bad or fate in ('confirmed', 'accepted'))::int), sum(bad::int)
  from judged, t group by job_id, t.at order by job_id
  on conflict (job_id, minute) do update
  set sent = batches_jobminute.sent + excluded.sent,
    confirmed = batches_jobminute.confirmed + excluded.confirmed,
    failed = batches_jobminute.failed + excluded.failed,
    in_doubt = batches_jobminute.in_doubt + excluded.in_doubt,
    returned = batches_jobminute.returned + excluded.returned,
    judged = batches_jobminute.judged + excluded.judged,
    bad = batches_jobminute.bad + excluded.bad
),
refund as (
  update batches_job j
  set budget_used = j.budget_used - n.n
  from (select job_id, count(*) as n from judged where refund group by job_id) n
  where j.id = n.job_id
)
select job_id, bool_or(pending = 0 or tripped) as shard_done from shard group by job_id

-- name: settle_calls
-- A call without a proof keeps `answered_at` empty: a late answer may still come.
update batches_call c
set answered_at = case when r.outcome = 'unknown' then null else clock_timestamp() end,
  lost_at = case when r.outcome = 'unknown' then clock_timestamp() else c.lost_at end,
  outcome = r.outcome, http_status = r.http_status, category = r.category, code = r.code,
  message = r.message, duration_ms = r.duration_ms
from unnest(
  %(calls)s::bigint[], %(outcomes)s::text[], %(statuses)s::int[], %(categories)s::text[],
  %(codes)s::text[], %(messages)s::text[], %(durations)s::int[]
) as r(id, outcome, http_status, category, code, message, duration_ms)
where c.id = any(array[r.id]) and c.answered_at is null
  and not (r.outcome = 'unknown' and c.lost_at is not null)

-- name: slow_accounts
-- A refusal for rate slows the account first (×½, not below 1/20) and holds it; a gateway that
-- cannot be reached holds it. Sends that left late push the gate by as much. Runs before
-- `settle_calls`: a call of the account that is answered already shows a repeated settle.
update batches_account a
set throttle = case when r.slow then greatest(0.05, a.throttle * 0.5) else a.throttle end,
  hold_until = case when r.hold > 0
    then greatest(coalesce(a.hold_until, '-infinity'),
      clock_timestamp() + r.hold * interval '1 second')
    else a.hold_until end,
  hold_reason = case when r.hold > 0 then r.reason else a.hold_reason end,
  gate_at = case when r.push > 0
    then greatest(coalesce(a.gate_at, clock_timestamp()), clock_timestamp())
      + r.push * interval '1 second'
    else a.gate_at end
from unnest(
  %(accounts)s::bigint[], %(slows)s::bool[], %(holds)s::float8[], %(reasons)s::text[],
  %(pushes)s::float8[], %(calls)s::bigint[]
) as r(id, slow, hold, reason, push, call_id)
where a.id = r.id
  and exists (
    select from batches_call c where c.id = r.call_id and c.answered_at is null offset 0)

-- name: recover_accounts
-- Additive recovery: every accepted group gives back a twentieth of the full pace.
update batches_account a
set throttle = least(1, a.throttle + 0.05)
from unnest(%(accounts)s::bigint[], %(calls)s::bigint[]) as r(id, call_id)
where a.id = r.id and a.throttle < 1
  and exists (
    select from batches_call c where c.id = r.call_id and c.answered_at is null offset 0)
