-- Recounting everything from the items and the calls. All of it runs in one snapshot, so that it
-- is exact while lanes are at work; every writer keeps its own transaction consistent.

-- name: verify_shards
-- Stored counters beside what the items say. `pending` includes items in flight, as the shard's
-- own counter does. `spent` are the items whose latest send counts against the budget: no
-- definite refusal returned it (a refused or unsent item was never accepted; one that an
-- operator found undelivered, or that the gateway took and failed later, stays spent).
with i as materialized (
  select i.shard_id, min(i.job_id) as job_id,
    count(*) as total,
    count(*) filter (where i.state = 'pending' or (i.state = 'submitted'
      and i.accepted_at is null and i.in_doubt_at is null)) as pending,
    count(*) filter (where i.state = 'submitted'
      and (i.accepted_at is not null or i.in_doubt_at is not null)) as submitted,
    count(*) filter (where i.state = 'confirmed') as confirmed,
    count(*) filter (where i.state = 'failed') as failed,
    count(*) filter (where i.state = 'abandoned') as abandoned,
    count(*) filter (where i.state = 'submitted' and i.in_doubt_at is not null) as in_doubt,
    count(*) filter (where i.state in ('submitted', 'confirmed') or (i.state = 'failed'
      and (i.category = 'not_delivered' or i.accepted_at is not null))) as spent
  from batches_item i
  where %(job)s::bigint is null
    or i.shard_id in (select id from batches_shard where job_id = %(job)s)
  group by i.shard_id
)
select coalesce(s.job_id, i.job_id) as job_id, s.ordinal, s.status,
  array[s.total, s.pending, s.submitted, s.confirmed, s.failed, s.abandoned, s.in_doubt]::bigint[]
    as stored,
  array[coalesce(i.total, 0), coalesce(i.pending, 0), coalesce(i.submitted, 0),
    coalesce(i.confirmed, 0), coalesce(i.failed, 0), coalesce(i.abandoned, 0),
    coalesce(i.in_doubt, 0)]::bigint[] as counted,
  coalesce(i.spent, 0) as spent
from (select * from batches_shard where %(job)s::bigint is null or job_id = %(job)s) s
full join i on i.shard_id = s.id
order by 1, 2

-- name: verify_jobs
-- `resent` are sends that were spent and then decided on again by a person (`retry_items`).
select j.id, j.status, j.total, j.budget_limit, j.budget_used, coalesce(e.n, 0) as resent
from batches_job j
left join (
  select job_id, count(*) as n from batches_event
  where item_id is not null and kind = 'item.retried'
  group by job_id
) e on e.job_id = j.id
where %(job)s::bigint is null or j.id = %(job)s
order by j.id

-- name: verify_twice
-- Never twice: of all calls that carried an item, at most one had no definite negative, plus one
-- for each time that a person decided to send again. A call with mixed answers counts where the
-- item still hangs on it; where the item moved on, its own answer was a refusal.
select u.item_id, min(c.job_id) as job_id, count(*) as sends, coalesce(min(e.n), 0) as decided
from batches_call c
cross join lateral unnest(c.item_ids) as u(item_id)
left join (
  select item_id, count(*) as n from batches_event
  where item_id is not null and kind = 'item.retried'
  group by item_id
) e on e.item_id = u.item_id
where (%(job)s::bigint is null or c.job_id = %(job)s)
  and (c.outcome is null or c.outcome in ('accepted', 'unknown')
    or (c.outcome = 'mixed' and exists (
      select from batches_item i
      where i.id = u.item_id and i.call_id = c.id and i.state in ('submitted', 'confirmed'))))
group by u.item_id
having count(*) > 1 + coalesce(min(e.n), 0)
order by u.item_id
limit %(most)s

-- name: verify_submitted
-- Never lost: a submitted item hangs on a call that carries it; while nobody has an answer and
-- nobody is in doubt, that call is open.
select i.id as item_id, i.job_id, i.call_id,
  case
    when c.id is null then 'no_call'
    when i.id <> all(c.item_ids) then 'foreign_call'
    else 'forgotten'
  end as fault
from batches_item i
left join batches_call c on c.id = i.call_id
where i.state = 'submitted' and (%(job)s::bigint is null or i.job_id = %(job)s)
  and (c.id is null or i.id <> all(c.item_ids)
    or (i.accepted_at is null and i.in_doubt_at is null
      and (c.answered_at is not null or c.lost_at is not null)))
order by i.id
limit %(most)s

-- name: verify_open_calls
-- A call without an answer: its items wait for it, and its lane is alive (or died just now).
select c.id as call_id, c.job_id, cardinality(c.item_ids) as items, n.waiting, l.dead
from batches_call c
cross join lateral (
  select count(*) as waiting from batches_item i
  where i.id = any(c.item_ids) and i.call_id = c.id and i.state = 'submitted'
    and i.accepted_at is null and i.in_doubt_at is null
) n
cross join lateral (
  select coalesce(max(least(coalesce(l.ended_at, 'infinity'), l.lease_expires_at)), c.sent_at)
    < now() - %(grace)s * interval '1 second' as dead
  from batches_lane l where l.id = c.lane_id
) l
where c.answered_at is null and c.lost_at is null
  and (%(job)s::bigint is null or c.job_id = %(job)s)
  and (n.waiting <> cardinality(c.item_ids) or l.dead)
order by c.id
limit %(most)s

-- name: verify_owners
-- Accounts with work whose lane is gone and that nobody has taken over.
select a.id as account_id, a.guid, a.lane_id
from batches_account a
join batches_lane l on l.id = a.lane_id
where a.is_active and least(coalesce(l.ended_at, 'infinity'), l.lease_expires_at)
    < now() - %(grace)s * interval '1 second'
  and exists (
    select from batches_shard s join batches_job j on j.id = s.job_id
    where s.account_id = a.id and s.status in ('pending', 'running') and s.pending > 0
      and j.status = 'running' and (%(job)s::bigint is null or j.id = %(job)s)
      and batches_may_send(j.start_at, j.window_from, j.window_to, now(), %(tz)s))
order by a.id
limit %(most)s

-- name: verify_rates
-- Never over: the fullest 60 seconds of each account, both ends included, since its limits were
-- last changed and its lane had taken that up (within two seconds), against its batch rate.
-- Another name is no change of a limit. Requests that never left are no sends.
with changed as (
  select e.account_id, max(e.at) + interval '5 seconds' as at
  from batches_event e
  where e.kind = 'account.changed'
    and e.data -> 'after' ?| array['total_rate_per_min', 'online_reserve_per_min']
  group by e.account_id
),
sends as (
  select c.account_id, c.sent_at,
    sum(cardinality(c.item_ids)) over (
      partition by c.account_id order by c.sent_at
      range between interval '60 seconds' preceding and current row) as n
  from batches_call c
  left join changed h on h.account_id = c.account_id
  where c.outcome is distinct from 'not_sent' and (h.at is null or c.sent_at > h.at)
    and (%(job)s::bigint is null or c.account_id in (
      select account_id from batches_shard where job_id = %(job)s))
)
select a.id as account_id, a.guid, a.total_rate_per_min - a.online_reserve_per_min as allowed,
  max(w.n)::bigint as sends, (array_agg(w.sent_at order by w.n desc))[1] as at
from sends w join batches_account a on a.id = w.account_id
where w.n > a.total_rate_per_min - a.online_reserve_per_min
group by a.id
order by a.id
limit %(most)s

-- name: verify_job_rates
-- The same of each job that has a ceiling, since it was last set: that happens under the lock of
-- the job row, as a claim does, so that the moment of the event parts the sends exactly.
with jobs as materialized (
  select j.id, j.rate_limit_per_min, (
      select max(e.at) from batches_event e where e.job_id = j.id and e.kind = 'job.rate_set'
    ) as changed_at
  from batches_job j
  where j.rate_limit_per_min is not null and (%(job)s::bigint is null or j.id = %(job)s)
),
sends as (
  select c.job_id, c.sent_at,
    sum(cardinality(c.item_ids)) over (
      partition by c.job_id order by c.sent_at
      range between interval '60 seconds' preceding and current row) as n
  from batches_call c join jobs j on j.id = c.job_id
  where c.outcome is distinct from 'not_sent'
    and (j.changed_at is null or c.sent_at > j.changed_at)
)
select j.id as job_id, j.rate_limit_per_min as allowed,
  max(w.n)::bigint as sends, (array_agg(w.sent_at order by w.n desc))[1] as at
from sends w join jobs j on j.id = w.job_id
where w.n > j.rate_limit_per_min
group by j.id, j.rate_limit_per_min
order by j.id
limit %(most)s

-- name: verify_gateway_rates
-- The same of each gateway that has a limit. Lanes go by a limit that was changed within `lag`
-- seconds; what they sent until then is not judged, nor are sends of an account from before it
-- was moved here. A permit is good for less than half a second, which the gate allows for, and a
-- claim that came too late for its permit never leaves: only calls that are known to have left
-- are counted, so not those without an answer yet, nor those that died with their lane.
with gateways as materialized (
  select g.id, g.base_url, g.rate_limit_per_min, (
      select max(e.at) + %(lag)s * interval '1 second' from batches_event e
      where e.kind = 'gateway.changed' and e.data -> 'object' ->> 'id' = g.id::text
        and e.data -> 'after' ? 'rate_limit_per_min'
    ) as changed_at
  from batches_gateway g
  where g.rate_limit_per_min is not null
    and (%(job)s::bigint is null or g.id in (
      select a.gateway_id from batches_shard s join batches_account a on a.id = s.account_id
      where s.job_id = %(job)s))
),
accounts as materialized (
  select a.id, a.gateway_id, greatest(g.changed_at, (
      select max(e.at) from batches_event e
      where e.kind = 'account.changed' and e.account_id = a.id and e.data -> 'after' ? 'gateway'
    )) as since
  from batches_account a join gateways g on g.id = a.gateway_id
),
sends as (
  select a.gateway_id, c.sent_at,
    sum(cardinality(c.item_ids)) over (
      partition by a.gateway_id order by c.sent_at
      range between interval '60 seconds' preceding and current row) as n
  from batches_call c join accounts a on a.id = c.account_id
  where c.outcome <> 'not_sent' and coalesce(c.category, '') not in ('lost', 'aborted')
    and (a.since is null or c.sent_at > a.since)
)
select g.id as gateway_id, g.base_url as gateway, g.rate_limit_per_min as allowed,
  max(w.n)::bigint as sends, (array_agg(w.sent_at order by w.n desc))[1] as at
from sends w join gateways g on g.id = w.gateway_id
where w.n > g.rate_limit_per_min
group by g.id, g.base_url, g.rate_limit_per_min
order by g.id
limit %(most)s

-- name: verify_stops
-- Stops at the item boundary: no claim between a job's stop and its next start. Every change of
-- status writes its event under the lock of the job row, stamped with the time of the statement:
-- after all claims that were committed before, and before any that follows the next start. Claims
-- are stamped under the same lock. Events of a job are in the order of that lock.
with moves as (
  select e.job_id, e.id, e.at, coalesce(
      e.data -> 'after' ->> 'status',
      case when e.kind = 'job.tripped' then e.data ->> 'to' end,
      case when substr(e.kind, 5) = any(%(statuses)s) then substr(e.kind, 5) end
    ) as status
  from batches_event e
  where e.kind like 'job.%%' and e.job_id is not null
    and (%(job)s::bigint is null or e.job_id = %(job)s)
),
spans as materialized (
  select job_id, at, status, lead(at, 1, 'infinity') over (partition by job_id order by id) as until
  from moves
  where status = any(%(statuses)s)
)
select s.job_id, s.status, s.at, count(*) as calls, min(c.sent_at) as sent_at
from spans s join batches_call c on c.job_id = s.job_id
where s.status <> 'running' and c.sent_at > s.at and c.sent_at < s.until
group by s.job_id, s.status, s.at
order by s.job_id, s.at
limit %(most)s

-- name: verify_size
select
  (select count(*) from batches_call c where %(job)s::bigint is null or c.job_id = %(job)s) as calls,
  (select count(*) from batches_account) as accounts
