-- What ends by itself: calls whose sender died, jobs with nothing left to do.

-- name: plan_by_index
-- What is open is a handful in tables of millions, and is to be looked up by key; on a table
-- without statistics the planner does not know. For this transaction only, as on the lane's own
-- connections.
select set_config('enable_seqscan', 'off', true), set_config('enable_hashjoin', 'off', true),
  set_config('enable_mergejoin', 'off', true)

-- name: lost_calls
-- In flight under a lane that is gone. SKIP LOCKED: several callers share the work. In the order
-- of the index of open calls, so that no other way to read them looks better to the planner.
select c.id, c.job_id
from batches_call c
where c.answered_at is null and c.lost_at is null
  and not exists (
    select from batches_lane l
    where l.id = c.lane_id and l.ended_at is null and l.lease_expires_at > clock_timestamp())
order by c.shard_id, c.lane_id
limit 2000
for update of c skip locked

-- name: mark_lost
-- Seen at once, never sent again: the items of lost calls become in doubt. Shards are locked before
-- minutes, as the settle does; left to the end of the statement they would come after them.
with gone as materialized (
  update batches_call set lost_at = clock_timestamp(), outcome = 'unknown', category = 'lost'
  where id = any(%(calls)s) and answered_at is null and lost_at is null
  returning id, job_id, shard_id, item_ids
),
item as (
  update batches_item i
  set in_doubt_at = clock_timestamp(), category = 'lost', code = null, message = null
  from (select g.id as call_id, unnest(g.item_ids) as item_id from gone g) g
  where i.id = any(array[g.item_id]) and i.call_id = g.call_id and i.state = 'submitted'
    and i.accepted_at is null and i.in_doubt_at is null
  returning i.id, i.job_id, i.shard_id
),
delta as materialized (select shard_id, count(*) as n from item group by shard_id),
ordered as materialized (
  select id from batches_shard where id in (select shard_id from delta)
  order by id for no key update
),
shard as (
  update batches_shard s
  set pending = s.pending - d.n, submitted = s.submitted + d.n, in_doubt = s.in_doubt + d.n
  from delta d join ordered o on o.id = d.shard_id
  where s.id = d.shard_id
  returning s.id
)
insert into batches_jobminute (job_id, minute, sent, confirmed, failed, in_doubt, returned)
select job_id, date_trunc('minute', clock_timestamp()), count(*), 0, 0, count(*), 0
from item where (select count(*) from shard) > 0 group by job_id order by job_id
on conflict (job_id, minute) do update
set sent = batches_jobminute.sent + excluded.sent,
  in_doubt = batches_jobminute.in_doubt + excluded.in_doubt

-- name: movable_jobs
-- Jobs whose status may have to move by itself; few rows, by the status index.
select id from batches_job
where status in ('running', 'pausing', 'verifying', 'cancelling', 'terminating')
  and (%(jobs)s::bigint[] is null or id = any(%(jobs)s))
order by id

-- name: job_tally
-- Sums over the shards, and what is in flight (counted in `pending`): looked up shard by shard,
-- because a table of calls that grew since its last statistics would be scanned for it.
select j.id, j.status, j.pause_reason, j.budget_limit, j.budget_used,
  j.stages[j.stages_passed + 1] as stage_limit,
  coalesce(s.pending, 0)::bigint as pending, coalesce(s.submitted, 0)::bigint as submitted,
  coalesce(s.runnable, 0)::bigint as runnable, coalesce(f.n, 0)::bigint as inflight,
  s.shards, s.tripped, j.breaker_shard_share,
  j.start_at, j.window_from, j.window_to, clock_timestamp() as now,
  coalesce(s.untouched, true) as untouched
from batches_job j
left join lateral (
  select sum(pending) as pending, sum(submitted) as submitted,
    sum(pending) filter (where status in ('pending', 'running')) as runnable,
    count(*) as shards, count(*) filter (where status = 'paused' and reason = 'breaker') as tripped,
    bool_and(last_advanced_at is null and bad_streak = 0) as untouched
  from batches_shard where job_id = j.id
) s on true
left join lateral (
  select sum(o.n) as n
  from batches_shard h
  cross join lateral (
    select sum(cardinality(c.item_ids)) as n from batches_call c
    where c.shard_id = h.id and c.answered_at is null and c.lost_at is null
  ) o
  where h.job_id = j.id
) f on true
where j.id = %(job)s

-- name: stage_tally
-- What a checkpoint found, for the event of the stop: the next one is compared with it.
select j.stages_passed as passed, sum(s.confirmed)::bigint as confirmed,
  sum(s.failed)::bigint as failed, sum(s.in_doubt)::bigint as in_doubt
from batches_job j join batches_shard s on s.job_id = j.id
where j.id = %(job)s
group by j.id

-- name: stage_failures
-- By their own index, once a checkpoint, while nothing of the job is being sent.
select category, count(*) as n from batches_item
where job_id = %(job)s and state = 'failed'
group by category

-- name: move_job
update batches_job
set status = %(target)s, pause_reason = %(reason)s, version = version + 1,
  finished_at = case when %(finished)s then clock_timestamp() else null end
where id = %(job)s and status = any(%(sources)s)
returning id

-- name: shards_to_abandon
select id from batches_shard where job_id = %(job)s and pending > 0 order by id

-- name: abandon_chunk
-- One shard, one bounded step; items in flight are `submitted` and stay for their answer. Looked up
-- one by one, as in the claim.
with picked as materialized (
  select id from batches_item
  where shard_id = %(shard)s and state = 'pending'
  order by seq limit %(most)s
  for no key update
),
item as (
  update batches_item i
  set state = 'abandoned', settled_at = clock_timestamp(), due_at = null
  from picked where i.id = any(array[picked.id]) and i.state is not distinct from 'pending'
  returning i.id
)
update batches_shard s
set pending = s.pending - n.n, abandoned = s.abandoned + n.n
from (select count(*) as n from item) n
where s.id = %(shard)s
returning n.n

-- name: cancel_shards
-- Ends the shards of a cancelled job that have nothing left to send.
update batches_shard s set status = 'cancelled', reason = ''
from (
  select id from batches_shard
  where job_id = %(job)s and pending = 0 and status in ('pending', 'running', 'paused')
  order by id for no key update
) o
where s.id = o.id

-- name: told_uncompiled
-- By the index of a job's events; what was told before the job last moved is over.
select exists (
  select from batches_event e
  where e.job_id = %(job)s and e.kind = 'job.cannot_compile'
    and e.at > coalesce(
      (select max(last_advanced_at) from batches_shard where job_id = %(job)s), '-infinity')
) as told

-- name: account_jobs
-- Jobs of which a shard of this account could still run.
select distinct job_id as id from batches_shard
where account_id = %(account)s and status in ('pending', 'running')
order by 1

-- name: lose_credential
update batches_account set health = 'credential', health_note = %(note)s
where id = %(account)s and health <> 'credential'
returning id

-- name: pause_account_shards
update batches_shard s set status = 'paused', reason = 'credential'
from (
  select id from batches_shard
  where account_id = %(account)s and job_id = any(%(jobs)s) and status in ('pending', 'running')
  order by id for no key update
) o
where s.id = o.id and s.status in ('pending', 'running')
returning s.job_id, s.ordinal

-- name: credential_jobs
-- Jobs of which a shard stands because this account lost its login.
select distinct job_id as id from batches_shard
where account_id = %(account)s and status = 'paused' and reason = 'credential'
order by 1

-- name: restore_credential
update batches_account set health = 'ok', health_note = ''
where id = %(account)s and health = 'credential'
returning id

-- name: resume_account_shards
-- Half-open, as after any other stop: with one item first.
update batches_shard s set status = 'running', reason = '', probe_from = clock_timestamp()
from (
  select id from batches_shard
  where account_id = %(account)s and job_id = any(%(jobs)s)
    and status = 'paused' and reason = 'credential'
  order by id for no key update
) o
where s.id = o.id and s.status = 'paused' and s.reason = 'credential'
returning s.job_id, s.ordinal

-- name: touch_jobs
-- Their pages have changed under whoever looks at them.
update batches_job set version = version + 1 where id = any(%(jobs)s)
