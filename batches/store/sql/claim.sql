-- The item boundary. `lock_jobs` and `claim` are two statements of one transaction: the second
-- one's snapshot is taken after the locks are held, so it sees every pause, cancel and budget
-- change that was committed before, and nobody can commit one until it is done.

-- name: lock_jobs
-- Always in id order, always before any other row: the one lock order of the application.
select id, status
from batches_job
where id = any(%(jobs)s::bigint[])
order by id
for no key update

-- name: claim
-- One want = one call to one account: `sizes` says how many targets a full call of it has, and its
-- items are those of `items` from `firsts` to `lasts`. Rate gates keep a virtual schedule `gate_at`; a call may leave at
-- any moment of [gate, gate + slack]. With c = ⌊r / size⌋ calls a minute at most c fit into 60 s
-- if c·step − slack >= 60, hence step = 60.5 / (c − slack/step); the half second covers the way
-- from this commit to the gateway. See docs/pacing.md for the proof, changes of size included.
--
-- Items, shards and accounts are looked up one by one, by their keys, whatever the planner knows of
-- the tables: laterals that it cannot pull up, `= any(array[x])` where the row is a join's, and
-- `is not distinct from` where a plain `=` would let it read a partial index from end to end.
with t as materialized (select clock_timestamp() as at),
lane as materialized (
  select l.id from batches_lane l, t
  where l.id = %(lane)s and l.ended_at is null and l.lease_expires_at > t.at
),
-- Locking the account rows is the fence: adoption by another lane changes `lane_id`, and this
-- condition is checked again once the lock is held.
locked as materialized (
  select a.*, w.grp, w.size, w.first, w.last
  from (
    select * from unnest(%(accounts)s::bigint[], %(sizes)s::int[], %(firsts)s::int[],
      %(lasts)s::int[]) with ordinality as w(id, size, first, last, grp)
    order by id
  ) w
  cross join lateral (
    select a.id, a.gate_at, a.gate_size, a.gate_step,
      a.total_rate_per_min - a.online_reserve_per_min as nominal,
      (a.total_rate_per_min - a.online_reserve_per_min) * a.throttle as r
    from batches_account a, lane, t
    where a.id = w.id and a.lane_id is not distinct from lane.id and a.is_active
      and a.health = 'ok'
      and exists (select from batches_gateway g where g.id = a.gateway_id and g.is_active)
      and (a.hold_until is null or a.hold_until <= t.at)
    for no key update of a
  ) a
),
paced as materialized (
  select id, grp, size, first, last, nominal, step, slack,
    greatest(
      case
        when gate_at is null or gate_step = 0 then coalesce(gate_at, at)
        -- counted from the send itself, so that a changed rate or throttle counts at once
        when gate_size = size then gate_at + (step - gate_step + case
            when step < 0.9 * gate_step then least(2.53, 0.6 * gate_step) else 0 end
          ) * interval '1 second'
        -- one size follows another: room on both sides, so that no window holds too many; the
        -- latest call may have left as late as its slack let it, which is the `least` here
        when gate_size > 1 and size > 1
        then gate_at + (60.5 + least(2.53, 0.6 * gate_step) - gate_step) * interval '1 second'
        else gate_at + (greatest(gate_step, step) + 60.5 / r + least(2.53, 0.6 * gate_step)
          - gate_step) * interval '1 second'
      end,
      at - slack * interval '1 second'
    ) as base
  from (
    select l.*, t.at,
      60.5 / (c.c - least(0.6, 0.04 * c.c)) as step,
      least(0.6, 0.04 * c.c) * 60.5 / (c.c - least(0.6, 0.04 * c.c)) as slack
    from locked l
    cross join lateral (
      select case when l.size = 1 then l.r else greatest(1, floor(l.r / l.size)) end as c
    ) c
    cross join t
  ) p
),
cand as materialized (
  select i.id, i.shard_id, s.job_id, a.id as account_id, a.base, a.step, a.slack, a.grp,
    a.first + u.n as ord,
    dense_rank() over (partition by a.id order by a.grp) as call_no,
    row_number() over (partition by a.grp order by u.n) as place, a.size, a.nominal,
    -- half-open: one item at a time, also for a lane that has not yet seen so
    case when s.probe_from is not null then exists (
      select from batches_call c
      where c.shard_id = i.shard_id and c.answered_at is null and c.lost_at is null
        and c.sent_at > s.probe_from offset 0
    ) end as waits
  from paced a
  cross join lateral (
    -- an item that was read twice is still sent once
    select id, min(n) as n
    from unnest((%(items)s::bigint[])[a.first:a.last]) with ordinality as u(id, n)
    group by id
  ) u
  cross join lateral (
    select id, shard_id, state, due_at from batches_item where id = u.id offset 0
  ) i
  cross join lateral (
    select job_id, account_id, status, probe_from from batches_shard where id = i.shard_id offset 0
  ) s
  cross join t
  where i.state = 'pending' and s.status in ('pending', 'running') and s.account_id = a.id
    and (i.due_at is null or i.due_at <= t.at)
),
timely as materialized (
  select c.*, row_number() over (partition by c.job_id order by c.ord) as n
  from cand c, t
  where c.base + (c.call_no - 1) * c.step * interval '1 second' <= t.at
    and c.place <= least(c.size, c.nominal)
    and (c.waits is null or (not c.waits and c.place = 1 and c.call_no = 1))
),
job as materialized (
  select j.id, j.rate_step, j.rate_base,
    least(
      coalesce(j.budget_limit - j.budget_used, 2147483647),
      coalesce(j.stages[j.stages_passed + 1] - j.budget_used, 2147483647),
      case
        when j.rate_step is null then 2147483647
        when j.rate_base > t.at then 0
        else floor(extract(epoch from t.at - j.rate_base) / j.rate_step) + 1
      end
    ) as room
  from (
    -- a minute, the half second of catching up, and half a second for the way to the gateway
    select b.*, 61.0 / b.rate_limit_per_min as rate_step,
      greatest(coalesce(b.rate_at, t.at), t.at - interval '0.5 second') as rate_base
    from batches_job b, t
    where b.id = any(%(jobs)s::bigint[]) and b.status = 'running'
      and batches_may_send(b.start_at, b.window_from, b.window_to, t.at, %(tz)s)
  ) j, t
),
fit as materialized (
  select c.* from timely c join job on job.id = c.job_id where c.n <= job.room
),
call_of as materialized (
  select account_id, base, step, slack, size, call_no, min(job_id) as job_id,
    min(shard_id) as shard_id, count(*) as n, array_agg(id order by ord) as item_ids,
    nextval('batches_call_id_seq') as call_id
  from fit group by grp, account_id, base, step, slack, size, call_no
),
gate as materialized (
  select account_id, base + max(call_no) * step * interval '1 second' as gate_at, step, size
  from call_of group by account_id, base, step, size
),
ok as materialized (
  select c.account_id, c.call_id, c.slack,
    c.base + c.call_no * c.step * interval '1 second' as gate_at, u.id
  from call_of c cross join lateral unnest(c.item_ids) as u(id)
),
spend as (
  update batches_job j
  set budget_used = j.budget_used + o.n,
    rate_at = case when job.rate_step is null then null
      else job.rate_base + o.n * job.rate_step * interval '1 second' end
  from (select job_id, sum(n) as n from call_of group by job_id) o
  join job on job.id = o.job_id
  where j.id = o.job_id
),
pace as (
  update batches_account a
  set gate_at = g.gate_at, gate_step = g.step, gate_size = g.size
  from gate g
  where a.id = any(array[g.account_id])
),
call as (
  insert into batches_call (id, job_id, shard_id, account_id, lane_id, item_ids, sent_at)
  select c.call_id, c.job_id, c.shard_id, c.account_id, %(lane)s, c.item_ids, t.at
  from call_of c, t
),
mark as (
  update batches_item i
  set state = 'submitted', submitted_at = t.at, call_id = ok.call_id, attempt = i.attempt + 1,
    due_at = null, accepted_at = null, in_doubt_at = null, settled_at = null, msg_id = null
  from ok, t
  where i.id = any(array[ok.id]) and i.state is not distinct from 'pending'
  returning ok.account_id, i.id as item_id, i.call_id, i.attempt,
    extract(epoch from ok.gate_at - t.at)::float8 as gate_in, ok.slack::float8 as slack
)
select * from mark
union all
-- accounts that are ours but got nothing: when their gate opens
select p.id, null, null, null, extract(epoch from p.base - t.at)::float8, p.slack::float8
from paced p, t
where p.id <> all(array(select account_id from call_of))

-- name: job_room
-- Why nothing of a job was claimed: what is left of its limits, and when its rate lets the next go.
select j.id, j.status,
  coalesce(j.budget_limit - j.budget_used, 2147483647) as budget_room,
  coalesce(j.stages[j.stages_passed + 1] - j.budget_used, 2147483647) as stage_room,
  greatest(0, extract(epoch from j.rate_at - clock_timestamp()))::float8 as rate_in,
  batches_may_send(j.start_at, j.window_from, j.window_to, clock_timestamp(), %(tz)s) as may_send
from batches_job j
where j.id = any(%(jobs)s)

-- name: unsent_calls
-- After a lost connection: calls this lane has claimed but does not know of were never sent.
select c.id, c.item_ids, c.job_id, c.shard_id, c.account_id
from batches_call c
where c.lane_id = %(lane)s and c.answered_at is null and c.lost_at is null
  and c.id <> all(%(known)s)
