-- What reports and the "why does it not move" sentence read: shards, accounts, lanes, minutes.
-- Items in flight are counted in `shard.pending` and are the targets of calls without an answer;
-- both are read in one statement, so that the sum is always the total.

-- name: report_shards
-- Bounded by the number of shards, not of items.
with f as materialized (
  select c.shard_id, sum(cardinality(c.item_ids))::bigint as n
  from batches_call c
  where c.job_id = %(job)s and c.answered_at is null and c.lost_at is null
  group by c.shard_id
)
select s.ordinal, a.guid as account, s.status, s.reason, s.cursor, s.last_advanced_at,
  s.total, s.pending, s.submitted, s.confirmed, s.failed, s.abandoned, s.in_doubt,
  coalesce(f.n, 0) as inflight
from batches_shard s
join batches_account a on a.id = s.account_id
left join f on f.shard_id = s.id
where s.job_id = %(job)s
order by s.ordinal

-- name: report_counts
with f as (
  select coalesce(sum(cardinality(c.item_ids)), 0)::bigint as n
  from batches_call c
  where c.job_id = %(job)s and c.answered_at is null and c.lost_at is null
)
select coalesce(sum(s.total), 0)::bigint as total, coalesce(sum(s.pending), 0)::bigint as pending,
  coalesce(sum(s.submitted), 0)::bigint as submitted,
  coalesce(sum(s.confirmed), 0)::bigint as confirmed, coalesce(sum(s.failed), 0)::bigint as failed,
  coalesce(sum(s.abandoned), 0)::bigint as abandoned,
  coalesce(sum(s.in_doubt), 0)::bigint as in_doubt,
  max(s.last_advanced_at) as last_advanced_at, (select n from f) as inflight
from batches_shard s
where s.job_id = %(job)s

-- name: report_failures
-- By the index of failed items alone.
select i.category, coalesce(i.code, '') as code, count(*) as count
from batches_item i
where i.job_id = %(job)s and i.state = 'failed'
group by i.category, i.code
order by count(*) desc, i.category, i.code

-- name: report_minutes
-- Sends made, refused ones too.
select m.minute, m.sent + m.returned as sent
from batches_jobminute m
where m.job_id = %(job)s and m.sent + m.returned > 0 and (%(since)s::timestamptz is null or m.minute >= %(since)s)
order by m.minute

-- name: why_standing
-- Of running jobs: whether each may send and since when nothing but itself is in its way, how many
-- of its shards are stuck, and whether anything executes at all.
with
-- use: stuck
, lanes as (
  select max(coalesce(l.ended_at, least(l.lease_expires_at, clock_timestamp()))) as last_alive_at
  from batches_lane l
  where l.id > (select coalesce(max(id), 0) - 200 from batches_lane)
)
select job.id as job_id, job.since, job.open, exists (select from live) as lane_alive,
  (select last_alive_at from lanes) as last_alive_at, coalesce(k.shards, 0) as stuck,
  coalesce(k.waiting, 0) as waiting, greatest(k.advanced, job.since) as stuck_since
from job
left join (
  select job_id, count(*) as shards, sum(pending)::bigint as waiting,
    max(last_advanced_at) as advanced
  from stuck
  where %(shard)s::bigint is null or id = %(shard)s
  group by job_id
) k on k.job_id = job.id

-- name: why_shards
-- What the shards that still have something to send wait for, summed by job and cause.
with f as materialized (
  select c.shard_id, sum(cardinality(c.item_ids))::bigint as n
  from batches_call c
  where c.job_id = any(%(jobs)s) and c.answered_at is null and c.lost_at is null
  group by c.shard_id
),
s as (
  select s.job_id, s.ordinal, s.last_advanced_at, s.pending - coalesce(f.n, 0) as waiting,
    coalesce(nullif(a.name, ''), a.guid) as account, a.throttle,
    case
      when s.status = 'paused' and s.reason in ('credential', 'breaker')
      then 'paused_' || s.reason
      when s.status = 'paused' then 'paused'
      when not g.is_active then 'gateway_off'
      when not a.is_active then 'account_off'
      when a.health = 'credential' then 'credential'
      -- its lane cannot learn what the gateway's shared limits allow
      when (g.rate_limit_per_min is not null or g.max_concurrent is not null) and exists (
        select from batches_lane l
        where l.id = a.lane_id and l.note = 'redis' and l.ended_at is null
          and l.lease_expires_at > clock_timestamp())
      then 'redis'
      when a.hold_until > clock_timestamp() then 'hold_' || a.hold_reason
      when a.gate_at > clock_timestamp() + interval '5 seconds' then 'hold_rate'
      else 'free'
    end as cause,
    case
      when a.hold_until > clock_timestamp() then a.hold_until else a.gate_at
    end as until
  from batches_shard s
  join batches_account a on a.id = s.account_id
  join batches_gateway g on g.id = a.gateway_id
  left join f on f.shard_id = s.id
  where s.job_id = any(%(jobs)s) and (%(shard)s::bigint is null or s.id = %(shard)s)
    and s.status in ('pending', 'running', 'paused')
)
select job_id, cause, count(*) as shards, sum(waiting)::bigint as waiting, min(until) as until,
  min(throttle)::float8 as throttle, max(last_advanced_at) as last_advanced_at,
  (array_agg(account order by ordinal))[1:3] as accounts
from s
where waiting > 0
group by job_id, cause
order by job_id, sum(waiting) desc, cause

-- name: why_tripped
-- How many shards of some jobs the breaker stopped, and the accounts of the first of them.
select s.job_id, count(*) as shards,
  (array_agg(coalesce(nullif(a.name, ''), a.guid) order by s.ordinal))[1:3] as accounts
from batches_shard s
join batches_account a on a.id = s.account_id
where s.job_id = any(%(jobs)s) and s.status = 'paused' and s.reason = 'breaker'
group by s.job_id

-- name: why_backoff
-- Whether all that is left of a job waits for a second try; looks at the head of a few of its
-- shards only.
select j.id as job_id,
  case when bool_and(i.due_at is not null) then min(i.due_at) end as due_at
from unnest(%(jobs)s::bigint[]) as j(id)
cross join lateral (
  select id from batches_shard
  where job_id = j.id and (%(shard)s::bigint is null or id = %(shard)s)
    and status in ('pending', 'running') and pending > 0
  order by ordinal limit 50
) s
cross join lateral (
  select due_at from batches_item
  where shard_id = s.id and state = 'pending' order by seq limit 100
) i
group by j.id

-- name: why_gateways
-- Gateways of running jobs' shards whose shared limits, and not the accounts' own, set the pace:
-- all places taken, or accounts at work that together may send more than the gateway lets through.
with mine as materialized (
  select distinct s.job_id, a.gateway_id
  from batches_shard s join batches_account a on a.id = s.account_id
  where s.job_id = any(%(jobs)s) and (%(shard)s::bigint is null or s.id = %(shard)s)
    and s.status in ('pending', 'running') and s.pending > 0
),
at_work as materialized (
  select a.id, a.gateway_id, max(s.last_advanced_at) as last_advanced_at,
    (a.total_rate_per_min - a.online_reserve_per_min) * a.throttle as rate
  from batches_job j
  join batches_shard s on s.job_id = j.id
  join batches_account a on a.id = s.account_id
  where j.status = 'running' and s.status in ('pending', 'running') and s.pending > 0
    and a.is_active and a.gateway_id in (select gateway_id from mine)
    and batches_may_send(j.start_at, j.window_from, j.window_to, clock_timestamp(), %(tz)s)
  group by a.id
),
full_up as (
  select g.id, coalesce(nullif(g.name, ''),
      substring(g.base_url from '^[a-z]+://(?:[^/?#]*@)?([^/?#]*)')) as gateway,
    g.rate_limit_per_min, g.max_concurrent, sum(w.rate)::float8 as wanted,
    coalesce(max(f.calls), 0) as in_flight, max(w.last_advanced_at) as last_advanced_at
  from batches_gateway g
  join at_work w on w.gateway_id = g.id
  left join (
    select a.gateway_id, count(*) as calls
    from batches_call c join batches_account a on a.id = c.account_id
    where c.answered_at is null and c.lost_at is null
    group by a.gateway_id
  ) f on f.gateway_id = g.id
  where g.rate_limit_per_min is not null or g.max_concurrent is not null
  group by g.id
  having sum(w.rate) > g.rate_limit_per_min or max(f.calls) >= g.max_concurrent
)
select mine.job_id, full_up.*
from mine join full_up on full_up.id = mine.gateway_id
order by mine.job_id, full_up.in_flight >= full_up.max_concurrent desc nulls last, full_up.id

-- name: why_stops
-- The latest events of some jobs as wholes that say for what each stands.
select e.id
from unnest(%(jobs)s::bigint[]) as j(id)
cross join lateral (
  select id from batches_event
  where job_id = j.id and shard_ordinal is null and kind = any(%(kinds)s)
  order by id desc limit 5
) e
