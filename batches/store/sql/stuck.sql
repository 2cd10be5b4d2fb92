-- The one measure of "stuck": alerts, screens and the sentence that says why all go by it.

-- part: stuck
-- A shard is stuck if it could send and nothing says why it does not: its job is inside its hours
-- and was let go long enough ago, account and gateway are on and well, no gate, hold, second try
-- or answer is being waited for, and its account is at work nowhere else; slices of an account and
-- accounts behind a shared limit take turns, so one alone may rightly wait for hours. Without a
-- live lane nothing is stuck: that is a reason of its own. Of all running jobs, or of `jobs`.
t as materialized (select clock_timestamp() as at),
live as materialized (
  select l.id, l.note from batches_lane l, t
  where l.ended_at is null and l.lease_expires_at > t.at
),
-- jobs that may send, and have been allowed to for a while: nothing can be late before that
job as materialized (
  select j.id, greatest(j.started_at, e.at) as since,
    batches_may_send(j.start_at, j.window_from, j.window_to, t.at, %(tz)s) and
    batches_may_send(j.start_at, j.window_from, j.window_to,
      t.at - %(no_lane)s * interval '1 second', %(tz)s) as open,
    batches_may_send(j.start_at, j.window_from, j.window_to,
      t.at - %(stuck)s * interval '1 second', %(tz)s) as open_long,
    j.rate_at
  from t, batches_job j
  left join lateral (
    -- who let it go on last; the audit of items may be long, so only its end is looked at
    select max(last.at) as at from (
      select kind, at from batches_event where job_id = j.id order by id desc limit 50
    ) last
    where last.kind = 'shard.resumed'
      or last.kind like 'job.%%' and last.kind not in ('job.calls_lost', 'job.tripped')
  ) e on true
  where j.status = 'running' and (%(jobs)s::bigint[] is null or j.id = any(%(jobs)s))
),
-- not materialized: where the suspects alone are asked for, the others need not be joined
runnable as (
  select s.id, s.job_id, s.ordinal, s.account_id, s.pending, a.gateway_id, a.gate_at,
    coalesce(nullif(a.name, ''), a.guid) as account,
    g.rate_limit_per_min is not null or g.max_concurrent is not null as shared, a.lane_id,
    s.last_advanced_at, a.hold_until
  from job
  join batches_shard s on s.job_id = job.id
  join batches_account a on a.id = s.account_id
  join batches_gateway g on g.id = a.gateway_id
  where job.open and s.status in ('pending', 'running') and s.pending > 0
    and a.is_active and g.is_active and a.health = 'ok'
),
-- stuck, by what the shard and its account say themselves
suspect as materialized (
  select r.* from runnable r join job on job.id = r.job_id, t
  where job.open_long and exists (select from live)
    -- implied by the next line, and known while the shards are being read: most fall out at once
    and coalesce(r.last_advanced_at, '-infinity')
      < statement_timestamp() - %(stuck)s * interval '1 second'
    and greatest(r.last_advanced_at, job.since) < t.at - %(stuck)s * interval '1 second'
    -- neither waiting nor tried within the last minute: each try moves one of these on
    and greatest(r.hold_until, r.gate_at, job.rate_at, '-infinity') < t.at - interval '1 minute'
    -- its account waits for an answer, as long as the gateway's time-out lets it
    and r.account_id not in (
      select account_id from batches_call where answered_at is null and lost_at is null)
    -- nobody can say what a shared limit of its gateway allows
    and not (r.shared and exists (
      select from live where live.id = r.lane_id and live.note = 'redis'))
),
-- an account (with a shared limit: a gateway) that advances elsewhere is at work, not stuck
busy as materialized (
  select s.account_id, a.gateway_id
  from batches_job j
  join batches_shard s on s.job_id = j.id
  join batches_account a on a.id = s.account_id, t
  where exists (select from suspect)
    and j.status not in ('preparing', 'awaiting', 'rejected')
    and (j.finished_at is null or j.finished_at > t.at - %(stuck)s * interval '1 second')
    and s.last_advanced_at > t.at - %(stuck)s * interval '1 second'
),
stuck as materialized (
  select s.* from suspect s, t
  where s.account_id not in (select account_id from busy)
    and not (s.shared and s.gateway_id in (select gateway_id from busy))
    -- not all of it waits for a second try
    and exists (
      select from (
        select due_at from batches_item
        where shard_id = s.id and state = 'pending' order by seq limit 100
      ) i
      where i.due_at is null or i.due_at < t.at - interval '1 minute')
)
