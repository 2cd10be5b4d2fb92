-- What needs a person, found out from the tables alone; what of it was told, and when.

-- name: watch_turn
-- One watcher at a time: two would wait for each other's rows. The lock ends with the transaction.
select pg_try_advisory_xact_lock(hashtext('batches.alerts'), 1)

-- name: watch_alerts
-- All conditions that hold now (`seen`), against the open alerts: opens what is missing, closes
-- what is gone, keeps the values of the others current. Everything is read from few rows: running
-- jobs and their shards, accounts, open calls, and for suspects the head of their items.
-- `sure` = enough to open; what is not sure only keeps an alert that is open already, so that a
-- gateway that is tried again every half minute is one alert and not hundreds.
with
-- use: stuck
, seen as materialized (
  select 'paused:' || j.id || ':' || j.pause_reason as key, 'job.' || j.pause_reason as kind,
    j.id as job_id, null::bigint as account_id, true as sure,
    jsonb_build_object('used', j.budget_used, 'count', coalesce((
      select sum(s.pending)::bigint from batches_shard s where s.job_id = j.id), 0)) as params
  from batches_job j
  where j.status in ('pausing', 'paused') and j.pause_reason = any(%(pauses)s)
  union all
  select 'tripped:' || s.job_id, 'job.shards_tripped', s.job_id, null, true,
    jsonb_build_object('shards', count(*), 'count', sum(s.pending)::bigint, 'accounts', to_jsonb(
      (array_agg(coalesce(nullif(a.name, ''), a.guid) order by s.ordinal))[1:3]))
  -- a job that stands for another reason still has them when it goes on
  from batches_job j
  join batches_shard s on s.job_id = j.id
  join batches_account a on a.id = s.account_id
  where j.status in ('running', 'pausing', 'paused')
    and s.status = 'paused' and s.reason = 'breaker'
  group by s.job_id
  union all
  select 'stuck:' || s.job_id, 'job.stuck', s.job_id, null, true,
    jsonb_build_object('shards', count(*), 'count', sum(s.pending)::bigint,
      'minutes', (%(stuck)s / 60)::int,
      'accounts', to_jsonb((array_agg(s.account order by s.ordinal))[1:3]))
  from stuck s
  group by s.job_id
  union all
  select 'in_doubt:' || d.job_id, 'job.in_doubt', d.job_id, null, true,
    jsonb_build_object('count', d.n, 'minutes', (%(sla)s / 60)::int)
  from (
    select job_id, sum(in_doubt)::bigint as n from batches_shard where in_doubt > 0 group by job_id
  ) d
  cross join lateral (
    select i.in_doubt_at from batches_item i
    where i.job_id = d.job_id and i.in_doubt_at is not null
    order by i.in_doubt_at limit 1
  ) oldest, t
  where oldest.in_doubt_at < t.at - %(sla)s * interval '1 second'
  union all
  -- a refused file needs somebody for a while, not for ever
  select 'intake:' || j.id, 'job.intake_gave_up', j.id, null, true, '{}'
  from batches_job j, t
  where j.status = 'rejected' and j.intake -> 'problems' @> '[{"code": "intake_gave_up"}]'
    and coalesce(j.finished_at, j.created_at) > t.at - interval '3 days'
  union all
  select 'credential:' || a.id, 'account.credential', null, a.id, true,
    jsonb_build_object('account', coalesce(nullif(a.name, ''), a.guid), 'shards', (
      select count(*) from batches_shard s
      where s.account_id = a.id and s.status = 'paused' and s.reason = 'credential'))
  from batches_account a join batches_gateway g on g.id = a.gateway_id
  where a.health = 'credential' and a.is_active and g.is_active
  union all
  -- workers leave when Redis is away: starting one would help nobody then
  select case when %(redis_away)s then 'redis_away' else 'no_lane' end,
    case when %(redis_away)s then 'redis.away' else 'lanes.none' end, null, null, true,
    jsonb_build_object('jobs', count(distinct r.job_id))
  from runnable r join job on job.id = r.job_id, t
  where job.since < t.at - %(no_lane)s * interval '1 second'
    and not exists (
      select from batches_lane l
      where least(coalesce(l.ended_at, 'infinity'), l.lease_expires_at)
        > t.at - %(no_lane)s * interval '1 second')
  having count(*) > 0
  union all
  -- only the host of its address: the rest may hold a password
  select 'gateway:' || g.id, 'gateway.unreachable', null, null,
    bool_or(a.hold_until > t.at + interval '5 seconds'),
    jsonb_build_object('accounts', count(*), 'gateway', coalesce(nullif(g.name, ''),
      substring(g.base_url from '^[a-z]+://(?:[^/?#]*@)?([^/?#]*)')))
  from batches_account a join batches_gateway g on g.id = a.gateway_id, t
  where a.hold_reason = 'gateway' and a.hold_until > t.at - interval '1 minute'
    and a.is_active and g.is_active
  group by g.id
),
opened as (
  insert into batches_alert (key, kind, job_id, account_id, text, params, opened_at)
  select s.key, s.kind, s.job_id, s.account_id, k.text, s.params, t.at
  from seen s join unnest(%(kinds)s::text[], %(texts)s::text[]) as k(kind, text) on k.kind = s.kind, t
  where s.sure and not exists (
    select from batches_alert a where a.key = s.key and a.closed_at is null)
  order by s.key
  on conflict (key) where closed_at is null do nothing
  returning id
),
closed as (
  update batches_alert a set closed_at = t.at
  from t
  where a.closed_at is null and a.kind = any(%(kinds)s::text[])
    and a.key not in (select key from seen)
  returning a.id
),
kept as (
  update batches_alert a set params = s.params
  from seen s
  where a.key = s.key and a.closed_at is null and a.params <> s.params
  returning a.id
)
select (select count(*) from opened)::int as opened, (select count(*) from closed)::int as closed,
  (select count(*) from kept)::int as kept

-- name: alert_turn
-- One sender at a time, for as long as the session holds it: no transaction spans the request.
select pg_try_advisory_lock(hashtext('batches.alerts'), 2)

-- name: alert_turn_over
select pg_advisory_unlock(hashtext('batches.alerts'), 2)

-- name: alerts_to_send
-- Open ones first. One that was over long ago before it could be told is left to the console.
select a.id, a.kind, a.text, a.params, a.job_id, j.name as job_name, a.account_id,
  a.opened_at, a.closed_at, c.guid as account_guid
from batches_alert a
left join batches_job j on j.id = a.job_id
left join batches_account c on c.id = a.account_id
where a.sent_at is null and (a.closed_at is null or a.closed_at > clock_timestamp() - interval '7 days')
order by a.closed_at is not null, a.id
limit %(most)s

-- name: alert_sent_ago
-- Seconds since the robot was last given something.
select extract(epoch from clock_timestamp() - max(sent_at))::float8 as ago from batches_alert

-- name: alerts_sent
update batches_alert set sent_at = clock_timestamp()
where id = any(%(alerts)s) and sent_at is null
