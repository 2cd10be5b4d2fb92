-- What the screens read. Counts come from shard rows, never from the items; each answer is one
-- statement, hence one snapshot, so that the numbers of a page sum up.

-- name: job_progress
-- Sums over the shards of some jobs; an item in flight is still counted in `pending`.
select s.job_id, sum(s.total)::bigint as total, sum(s.pending)::bigint as pending,
  sum(s.submitted)::bigint as submitted, sum(s.confirmed)::bigint as confirmed,
  sum(s.failed)::bigint as failed, sum(s.abandoned)::bigint as abandoned,
  sum(s.in_doubt)::bigint as in_doubt, coalesce(max(f.n), 0)::bigint as inflight,
  max(s.last_advanced_at) as last_advanced_at, count(*) as shards
from batches_shard s
left join (
  select c.job_id, sum(cardinality(c.item_ids)) as n
  from batches_call c
  where c.answered_at is null and c.lost_at is null and c.job_id = any(%(jobs)s)
  group by c.job_id
) f on f.job_id = s.job_id
where s.job_id = any(%(jobs)s)
group by s.job_id

-- name: job_pace
-- Sends per minute over the last minutes (the running one included), and what became of them.
-- Returned sends are those that a definite refusal took back; they were made all the same. A job
-- that does not move has no pace: what it did a moment ago says nothing of now. What came of it
-- does (`moving` is null): a person is to judge by it whether to go on.
select m.job_id, sum(m.sent + m.returned)::bigint as sent, sum(m.confirmed)::bigint as confirmed,
  sum(m.failed)::bigint as failed, greatest(min(m.minute), min(j.started_at)) as since
from batches_jobminute m join batches_job j on j.id = m.job_id
where m.job_id = any(%(jobs)s)
  and m.minute >= date_trunc('minute', clock_timestamp()) - %(minutes)s * interval '1 minute'
  and (%(moving)s::text[] is null or j.status = any(%(moving)s))
group by m.job_id

-- name: job_shards
-- A page of a job's shards, those that need a look first.
with
-- use: stuck
, f as (
  select c.shard_id, sum(cardinality(c.item_ids))::bigint as n
  from batches_call c
  where c.answered_at is null and c.lost_at is null and c.job_id = %(job)s
  group by c.shard_id
),
judged as (
  select s.*, a.guid, a.name as account_name, a.is_active, a.health, a.hold_until, a.hold_reason,
    a.throttle, coalesce(f.n, 0) as inflight, s.id in (select id from stuck) as stuck
  from batches_shard s join batches_account a on a.id = s.account_id
  left join f on f.shard_id = s.id
  where s.job_id = %(job)s
)
select *, count(*) over () as found
from judged
where (%(ordinal)s::int is null or ordinal = %(ordinal)s) and (%(having)s = '' or (
  case %(having)s
    when 'stuck' then stuck
    when 'paused' then status = 'paused'
    when 'pending' then pending - inflight > 0
    when 'underway' then submitted - in_doubt + inflight > 0
    when 'in_doubt' then in_doubt > 0
    when 'confirmed' then confirmed > 0
    when 'failed' then failed > 0
    when 'abandoned' then abandoned > 0
  end))
order by
  case when stuck then 0 when status = 'paused' then 1 when in_doubt > 0 then 2
    when status = 'failed' then 3 when status = 'running' then 4 when status = 'pending' then 5
    else 6 end,
  ordinal
limit %(limit)s offset %(offset)s

-- name: job_account_loads
-- Minutes that the job's slowest account needs, alone and if every other running job of that
-- account goes first: the ends of an honest estimate.
select max(o.mine / o.rate) as alone, max((o.mine + o.others) / o.rate) as shared,
  coalesce(sum(o.rate), 0) as rate
from (
  select m.n as mine,
    ((a.total_rate_per_min - a.online_reserve_per_min) * a.throttle)::float8 as rate,
    coalesce((
      select sum(s.pending) from batches_shard s join batches_job j on j.id = s.job_id
      where s.account_id = a.id and s.status in ('pending', 'running') and s.job_id <> %(job)s
        and j.status = 'running'), 0)::float8 as others
  from (
    select account_id, sum(pending)::float8 as n from batches_shard
    where job_id = %(job)s and status in ('pending', 'running', 'paused') and pending > 0
    group by account_id
  ) m
  join batches_account a on a.id = m.account_id
) o

-- name: job_minutes
-- What came of each of the last minutes; a minute without a row sent nothing.
select m.job_id, m.minute, m.sent, m.sent + m.returned as made, m.confirmed, m.failed, m.in_doubt
from batches_jobminute m
where m.job_id = any(%(jobs)s)
  and m.minute > date_trunc('minute', clock_timestamp()) - %(minutes)s * interval '1 minute'
order by m.job_id, m.minute

-- name: nav_counts
select
  (select count(*) from batches_job
   where status in ('running', 'pausing', 'verifying', 'cancelling', 'terminating')) as running,
  (select coalesce(sum(in_doubt), 0)::bigint from batches_shard where in_doubt > 0) as in_doubt,
  (select count(*) from (
     select from batches_alert where closed_at is null limit 100) a) as alerts

-- name: doubtful_jobs
-- By the partial index of shards with doubts: few rows. The sums are over all jobs, listed or not.
select job_id, sum(in_doubt)::bigint as in_doubt, sum(sum(in_doubt)) over ()::bigint as total,
  count(*) over () as jobs
from batches_shard where in_doubt > 0
group by job_id order by in_doubt desc, job_id desc limit %(most)s

-- name: doubts
-- The oldest items in doubt over all jobs (or of one), merged from each job's own oldest. The jobs
-- that a page comes from are those whose oldest are the oldest: as many as the page has items at
-- most, so that of all others one index entry is read.
with j as materialized (
  select d.job_id
  from (
    select distinct job_id from batches_shard
    where in_doubt > 0 and (%(job)s::bigint is null or job_id = %(job)s)
  ) s
  cross join lateral (
    select d.job_id, d.in_doubt_at, d.id from batches_item d
    where d.job_id = s.job_id and d.in_doubt_at is not null
      and (%(at)s::timestamptz is null or (d.in_doubt_at, d.id) > (%(at)s, %(item)s))
    order by d.in_doubt_at, d.id
    limit 1
  ) d
  order by d.in_doubt_at, d.id
  limit %(limit)s
),
i as (
  select i.* from j cross join lateral (
    select * from batches_item d
    where d.job_id = j.job_id and d.in_doubt_at is not null
      and (%(at)s::timestamptz is null or (d.in_doubt_at, d.id) > (%(at)s, %(item)s))
    order by d.in_doubt_at, d.id
    limit %(limit)s
  ) i
  order by i.in_doubt_at, i.id
  limit %(limit)s
)
select i.id, i.job_id, b.name as job_name, s.ordinal as shard_ordinal,
  coalesce(nullif(a.name, ''), a.guid) as account, i.row_no, i.target, i.in_doubt_at as since,
  i.submitted_at, i.category, i.msg_id, i.call_id, c.http_status, c.message as call_message
from i
join batches_job b on b.id = i.job_id
join batches_shard s on s.id = i.shard_id
join batches_account a on a.id = s.account_id
left join batches_call c on c.id = i.call_id
order by i.in_doubt_at, i.id

-- name: unconfirmed
-- Of one job: taken by the gateway, confirmation still to come.
with i as (
  select * from batches_item d
  where d.job_id = %(job)s and d.state = 'submitted' and d.accepted_at is not null
    and (%(at)s::timestamptz is null or (d.submitted_at, d.id) > (%(at)s, %(item)s))
  order by d.submitted_at, d.id
  limit %(limit)s
)
select i.id, i.job_id, b.name as job_name, s.ordinal as shard_ordinal,
  coalesce(nullif(a.name, ''), a.guid) as account, i.row_no, i.target, i.submitted_at as since,
  i.submitted_at, i.category, i.msg_id, i.call_id, c.http_status, c.message as call_message
from i
join batches_job b on b.id = i.job_id
join batches_shard s on s.id = i.shard_id
join batches_account a on a.id = s.account_id
left join batches_call c on c.id = i.call_id
order by i.submitted_at, i.id

-- name: accounts_at_work
-- For some accounts: how many jobs use each, and what is left to send; also what stands still, since
-- that is when somebody asks. Jobs first, by their status: few are open, whatever lies behind them.
select s.account_id, count(distinct s.job_id) as jobs, sum(s.pending)::bigint as pending
from batches_shard s join batches_job j on j.id = s.job_id
where s.account_id = any(%(accounts)s) and s.pending > 0
  and j.status in ('running', 'pausing', 'paused', 'verifying', 'terminating', 'terminated')
group by s.account_id

-- name: failed_of_shard
-- The failed items of one shard, in order. All its items are read, by the unique index on shard
-- and target: they are bounded by the size of a slice, the failures of the job are not. Put away
-- first, so that the wish for an order does not lead the planner through every item there is.
with s as materialized (
  select id, category, code from batches_item
  where shard_id = %(shard)s and state = 'failed'
)
select id from s
where id > %(after)s
  and (%(category)s::text is null or category = %(category)s)
  and (%(code)s::text is null or coalesce(code, '') = %(code)s)
order by id
limit %(most)s

-- name: shard_failures_by_category
select category as value, count(*) as n from batches_item
where shard_id = %(shard)s and state = 'failed'
  and (%(category)s::text is null or category = %(category)s)
group by 1 order by n desc, 1

-- name: shard_failures_by_code
select coalesce(code, '') as value, count(*) as n from batches_item
where shard_id = %(shard)s and state = 'failed'
  and (%(category)s::text is null or category = %(category)s)
group by 1 order by n desc, 1

-- name: failed_heads
-- The next failed items of a category, merged from the heads of its codes, each of which the
-- index gives in order: nothing reads or sorts more than a page of each.
select i.id
from unnest(%(codes)s::text[]) as c(code)
cross join lateral (
  select id from batches_item
  where job_id = %(job)s and state = 'failed' and category = %(category)s and code = c.code
    and id > %(after)s
  order by id
  limit %(most)s
) i
union all
(
  select id from batches_item
  where job_id = %(job)s and state = 'failed' and category = %(category)s and code is null
    and %(no_code)s and id > %(after)s
  order by id
  limit %(most)s
)
order by 1
limit %(most)s
