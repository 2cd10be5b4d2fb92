-- What a person asks for. Each runs under the lock of the job row (see `lock_jobs`).

-- name: job_in_flight
-- By the index of open calls, shard by shard: a handful of rows, whatever the size of the job.
select coalesce(sum(o.n), 0)::bigint
from batches_shard h
cross join lateral (
  select sum(cardinality(c.item_ids)) as n from batches_call c
  where c.shard_id = h.id and c.answered_at is null and c.lost_at is null
) o
where h.job_id = %(job)s

-- name: set_job_rate
-- `rate_at` may lie a whole step of the old, slower pace ahead; a faster one must not wait for it.
update batches_job
set rate_limit_per_min = %(per_min)s::int, version = version + 1,
  rate_at = case
    when %(per_min)s::int is null then null
    else least(rate_at, clock_timestamp() + interval '60.5 seconds' / %(per_min)s::int)
  end
where id = %(job)s and status = any(%(sources)s)

-- name: trust_accounts
-- Who resumes a shard that an expired login stopped says that the account is logged in again. If
-- it is not, the next answer stops it once more, at the price of one refused (not sent) item.
update batches_account a set health = 'ok', health_note = ''
from (
  select id from batches_account
  where health = 'credential' and id in (
    select account_id from batches_shard
    where job_id = %(job)s and status = 'paused' and reason = 'credential'
      and (%(ordinal)s::int is null or ordinal = %(ordinal)s))
  order by id for no key update
) o
where a.id = o.id
returning a.id

-- name: resume_tripped_shards
-- Half-open: each tries with one item first.
update batches_shard s
set status = 'running', reason = '', probe_from = clock_timestamp()
from (
  select id from batches_shard
  where job_id = %(job)s and status = 'paused' and reason <> %(person)s
  order by id for no key update
) o
where s.id = o.id and s.status = 'paused'
returning s.ordinal

-- name: probe_shards
-- The job as a whole was stopped: each of its shards tries with one item first.
update batches_shard s
set probe_from = clock_timestamp()
from (
  select id from batches_shard
  where job_id = %(job)s and status in ('pending', 'running')
  order by id for no key update
) o
where s.id = o.id

-- name: pick_failed
-- Some failed items of a retry, any of them, so that the scan ends as soon as there are enough;
-- those that failed after the retry began are not meant by it. Nothing is locked yet.
select array_agg(f.id) as items, array_agg(distinct f.shard_id) as shards
from (
  select i.id, i.shard_id
  from batches_item i
  where i.job_id = %(job)s and i.state = 'failed' and i.category = any(%(categories)s)
    and (%(code)s::text is null or coalesce(i.code, '') = %(code)s)
    and (%(shard)s::bigint is null or i.shard_id = %(shard)s)
    and (%(items)s::bigint[] is null or i.id = any(%(items)s))
    and i.settled_at <= %(began)s
  limit %(most)s
) f

-- name: lock_shards
-- Before their items, all at once and in id order.
select id from batches_shard where id = any(%(shards)s) order by id for no key update

-- name: retry_items
-- One bounded step of a retry. The last failure stays on the item until its next attempt; the
-- next claim makes a new call. An item whose send is known to have left (an operator found that
-- it did not arrive, or the gateway took it and refused later) is the one case of a second send:
-- it gets an audit line of its own, from which `verify` knows that it was a person's decision.
-- Looked up one by one, as in the claim.
with picked as materialized (
  select i.id, i.shard_id, i.call_id,
    (i.category = 'not_delivered' or i.accepted_at is not null) as spent
  from batches_item i
  where i.id = any(%(picked)s) and i.state is not distinct from 'failed'
  order by i.id
  for no key update
),
item as (
  update batches_item i
  set state = 'pending', attempt = 0, due_at = null, settled_at = null,
    accepted_at = null, msg_id = null
  from picked p
  where i.id = any(array[p.id]) and i.state is not distinct from 'failed'
  returning i.id, i.shard_id, p.spent, p.call_id
),
delta as materialized (select shard_id, count(*) as n from item group by shard_id),
shard as (
  update batches_shard s
  set failed = s.failed - d.n, pending = s.pending + d.n,
    status = case when s.status = any(%(reopened)s) then 'running' else s.status end
  from delta d
  where s.id = d.shard_id
  returning s.id, s.ordinal
),
audit as (
  insert into batches_event
    (at, kind, job_id, shard_ordinal, item_id, actor_id, actor_name, reason, data)
  select clock_timestamp(), 'item.retried', %(job)s, s.ordinal, item.id, %(actor)s::int,
    %(actor_name)s::text, %(reason)s::text, jsonb_build_object('call', item.call_id)
  from item join shard s on s.id = item.shard_id
  where item.spent
)
select count(*)::int as moved, count(*) filter (where spent)::int as resent from item

-- name: reconcile_items
-- An operator's finding about items without a proof. Items first and in id order, then shards in
-- id order, as the settle does. Items in flight (neither accepted nor in doubt) still wait for
-- their answer and are not touched, nor is an item that was sent again since the person looked: the
-- finding is about the call in `calls`, if it names one. The send stays spent either way.
with t as materialized (select clock_timestamp() as at),
picked as materialized (
  select i.id, i.shard_id, i.seq, i.call_id, i.in_doubt_at is not null as doubt, i.category
  from batches_item i
  join unnest(%(items)s::bigint[], %(calls)s::bigint[]) as w(id, call_id) on w.id = i.id
  where i.job_id = %(job)s and i.id = any(%(items)s) and i.state = 'submitted'
    and (i.in_doubt_at is not null or i.accepted_at is not null)
    and (w.call_id is null or i.call_id = w.call_id)
  order by i.id
  for no key update of i
),
item as (
  update batches_item i
  set state = %(state)s::text, settled_at = t.at, in_doubt_at = null,
    category = %(category)s::text, code = null,
    message = case when %(category)s::text is null then null else %(reason)s::text end
  from picked p, t
  where i.id = p.id and i.state = 'submitted'
  returning i.id, p.shard_id, p.seq, p.call_id, p.doubt, p.category
),
delta as materialized (
  select shard_id, count(*) as n, count(*) filter (where doubt) as doubts, max(seq) as seq
  from item group by shard_id
),
ordered as materialized (
  select id from batches_shard where id in (select shard_id from delta)
  order by id for no key update
),
shard as (
  update batches_shard s
  set submitted = s.submitted - d.n,
    in_doubt = s.in_doubt - d.doubts,
    confirmed = s.confirmed + case when %(state)s::text = 'confirmed' then d.n else 0 end,
    failed = s.failed + case when %(state)s::text = 'failed' then d.n else 0 end,
    cursor = greatest(s.cursor, d.seq),
    last_advanced_at = t.at,
    status = case
      when s.status in ('pending', 'running', 'paused') and s.pending = 0 and s.submitted = d.n
      then case
        when %(state)s::text = 'failed' and s.failed + d.n = s.total then 'failed' else 'completed'
      end
      else s.status
    end,
    reason = case when s.pending = 0 and s.submitted = d.n then '' else s.reason end
  from delta d join ordered o on o.id = d.shard_id, t
  where s.id = d.shard_id
  returning s.id, s.ordinal
),
minute as (
  insert into batches_jobminute (job_id, minute, sent, confirmed, failed, in_doubt, returned)
  select %(job)s, date_trunc('minute', t.at), 0,
    case when %(state)s::text = 'confirmed' then sum(d.n) else 0 end,
    case when %(state)s::text = 'failed' then sum(d.n) else 0 end, 0, 0
  from delta d, t group by t.at
  on conflict (job_id, minute) do update
  set confirmed = batches_jobminute.confirmed + excluded.confirmed,
    failed = batches_jobminute.failed + excluded.failed
),
audit as (
  insert into batches_event
    (at, kind, job_id, shard_ordinal, item_id, actor_id, actor_name, reason, data)
  select t.at, %(kind)s::text, %(job)s, s.ordinal, item.id, %(actor)s::int, %(actor_name)s::text, %(reason)s::text,
    jsonb_build_object('call', item.call_id, 'in_doubt', item.doubt,
      'before', item.category, 'after', %(state)s::text)
  from item join shard s on s.id = item.shard_id, t
)
select count(*)::int as marked from item
