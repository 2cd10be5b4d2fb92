-- A lane's lease, the accounts it owns, and what it sees of them.

-- name: start_lane
insert into batches_lane (worker, started_at, lease_expires_at, stop_requested, sent)
values (%(worker)s, clock_timestamp(), clock_timestamp() + %(lease)s * interval '1 second', false, 0)
returning id

-- name: renew_lane
-- No row: the lease ran out or somebody ended the turn; the lane must stop, never renew late.
update batches_lane
set lease_expires_at = clock_timestamp() + %(lease)s * interval '1 second', sent = %(sent)s,
  note = %(note)s
where id = %(lane)s and ended_at is null and lease_expires_at > clock_timestamp()
returning stop_requested

-- name: end_lane
update batches_lane set ended_at = clock_timestamp(), sent = %(sent)s
where id = %(lane)s and ended_at is null

-- name: release_accounts
update batches_account set lane_id = null
where lane_id = %(lane)s and (%(accounts)s::bigint[] is null or id = any(%(accounts)s))

-- name: share
-- How many accounts one lane may hold: all that can run, split evenly between the live lanes.
select
  (select count(*) from batches_lane where ended_at is null and lease_expires_at > clock_timestamp()) as lanes,
  (select count(*) from batches_account a join batches_gateway g on g.id = a.gateway_id
   where a.is_active and g.is_active and a.health = 'ok' and exists (
     select from batches_shard s join batches_job j on j.id = s.job_id
     where s.account_id = a.id and s.status in ('pending', 'running') and s.pending > 0
       and j.status = 'running'
       and batches_may_send(j.start_at, j.window_from, j.window_to, clock_timestamp(), %(tz)s))) as accounts

-- name: adopt
-- Accounts with something to run and no live owner. SKIP LOCKED: two lanes adopting at once
-- share them out instead of waiting for each other.
with pick as materialized (
  select a.id
  from batches_account a join batches_gateway g on g.id = a.gateway_id
  where a.is_active and g.is_active and a.health = 'ok'
    and (a.lane_id is null or not exists (
      select from batches_lane l
      where l.id = a.lane_id and l.ended_at is null and l.lease_expires_at > clock_timestamp()))
    and exists (
      select from batches_shard s join batches_job j on j.id = s.job_id
      where s.account_id = a.id and s.status in ('pending', 'running') and s.pending > 0
        and j.status = 'running'
        and batches_may_send(j.start_at, j.window_from, j.window_to, clock_timestamp(), %(tz)s))
  order by a.id
  limit %(most)s
  for no key update of a skip locked
)
update batches_account a set lane_id = %(lane)s
from pick
where a.id = pick.id and exists (
  select from batches_lane l
  where l.id = %(lane)s and l.ended_at is null and l.lease_expires_at > clock_timestamp())
returning a.id

-- name: lane_accounts
-- `step` is that of the claim's gate at the present rate, or a little more: enough to see early
-- that a raised rate or a lifted hold lets an account go sooner.
select a.id, a.guid, a.gateway_id, a.max_inflight, a.throttle < 1 as throttled,
  a.total_rate_per_min - a.online_reserve_per_min as rate, p.step::float8 as step,
  greatest(0, extract(epoch from greatest(
    a.gate_at + least(0, p.step - a.gate_step) * interval '1 second', a.hold_until
  ) - clock_timestamp()))::float8 as due_in
from batches_account a
join batches_gateway g on g.id = a.gateway_id
cross join lateral (
  select 63.1 * a.gate_size
    / ((a.total_rate_per_min - a.online_reserve_per_min) * a.throttle) as step
) p
where a.lane_id = %(lane)s and a.is_active and g.is_active and a.health = 'ok'

-- name: lane_gateways
select g.id, g.kind, g.base_url, g.dialect, g.token, g.options, g.timeout_seconds,
  g.rate_limit_per_min, g.max_concurrent
from batches_gateway g
where g.id in (select gateway_id from batches_account where lane_id = %(lane)s)

-- name: lane_shards
select s.id, s.account_id, s.job_id, s.status, s.pending, s.probe_from is not null as probe
from batches_shard s
join batches_account a on a.id = s.account_id
join batches_job j on j.id = s.job_id
where a.lane_id = %(lane)s and s.status in ('pending', 'running') and s.pending > 0
  and j.status = 'running'
  and batches_may_send(j.start_at, j.window_from, j.window_to, clock_timestamp(), %(tz)s)
order by s.job_id, s.ordinal

-- name: lane_jobs
-- `judged` and `bad`: the latest outcomes, of every lane and turn, by whole minutes until there are
-- as many as the window holds; those before the last resume, and its own minute, do not count.
select j.id, j.status, j.action, j.params, j.columns, j.mapping, j.confirm_policy,
  j.max_attempts, j.priority, j.breaker_ratio, j.breaker_window, j.breaker_min_sample,
  j.call_size, j.breaker_from, w.judged, w.bad
from batches_job j
cross join lateral (
  select coalesce(sum(m.judged), 0)::bigint as judged, coalesce(sum(m.bad), 0)::bigint as bad
  from (
    select judged, bad, sum(judged) over (order by minute desc) - judged as later
    from (
      select minute, judged, bad from batches_jobminute
      where job_id = j.id and minute > coalesce(j.breaker_from, '-infinity')
      order by minute desc limit j.breaker_window
    ) m
  ) m
  where m.later < j.breaker_window
) w
where j.id = any(%(jobs)s)

-- name: start_shards
-- Guarded and in id order; a shard is `running` from its adoption on.
update batches_shard s set status = 'running'
from (
  select id from batches_shard
  where id = any(%(shards)s) and status = 'pending'
  order by id for no key update
) o
where s.id = o.id and s.status = 'pending'

-- name: next_items
-- The next items of several shards, each from where the lane's look-ahead has got to.
select i.id, i.shard_id, i.seq, i.target, i.fields
from unnest(%(shards)s::bigint[], %(after)s::int[]) as w(shard_id, after)
cross join lateral (
  select id, shard_id, seq, target, fields
  from batches_item
  where shard_id = w.shard_id and state = 'pending' and seq > w.after
    and (due_at is null or due_at <= clock_timestamp())
  order by seq
  limit %(each)s
) i

-- name: prune_lanes
-- No row refers to a pruned turn: its accounts were released or adopted, its calls settled.
delete from batches_lane l
where l.lease_expires_at < clock_timestamp() - interval '1 day'
  and not exists (select from batches_account a where a.lane_id = l.id)
