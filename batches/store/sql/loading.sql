-- From checked rows to items. Rows are staged in temporary tables, which vanish with the session,
-- so a reader that is killed leaves nothing behind; one transaction makes shards, items and
-- rejections of them together with the change of the job's status.

-- name: stage_open
-- `fields` is one text, its cells joined by U+001F: far cheaper to copy in than an array.
-- No index: every use reads the whole table once.
drop table if exists pg_temp.intake_row, pg_temp.intake_bad, pg_temp.intake_slice;
create temporary table intake_row (
  row_no integer not null,
  account_id bigint not null,
  target text not null,
  fields text not null
);
create temporary table intake_bad (
  row_no integer not null,
  code text not null,
  column_name text not null,
  value text not null,
  text text not null,
  params jsonb not null,
  fields jsonb not null
);

-- name: stage_close
drop table if exists pg_temp.intake_row, pg_temp.intake_bad, pg_temp.intake_slice;

-- name: stage_copy_rows
copy intake_row (row_no, account_id, target, fields) from stdin

-- name: stage_copy_bad
copy intake_bad (row_no, code, column_name, value, text, params, fields) from stdin

-- name: stage_duplicates
-- The first of several rows with the same account and target stays. Grouping first and joining
-- the few repeated ones is cheaper than a window over all rows.
with repeated as (
  select account_id, target, min(row_no) as first_row
  from intake_row
  group by account_id, target
  having count(*) > 1
),
gone as (
  delete from intake_row r
  using repeated f
  where r.account_id = f.account_id and r.target = f.target and r.row_no > f.first_row
  returning r.row_no, r.target, r.fields, f.first_row
),
moved as (
  insert into intake_bad (row_no, code, column_name, value, text, params, fields)
  select row_no, %(code)s, %(column)s, target, %(text)s,
         jsonb_build_object('value', target, 'first', first_row),
         to_jsonb(string_to_array(fields, U&'\001F'))
  from gone
)
select count(*), min(row_no), (array_agg(first_row order by row_no))[1],
       (array_agg(target order by row_no))[1]
from gone

-- name: stage_slices
-- The shards to be: one per account, or hash slices of it. Built from the rows themselves, so
-- that none is empty; the hash of the target is stable, so the same file gives the same slices.
create temporary table intake_slice as
with counted as (
  select account_id, ceil(count(*) / %(size)s::numeric)::bigint as slices
  from intake_row
  group by account_id
),
sliced as (
  select r.account_id, c.slices,
         (hashtextextended(r.target, 0) & 9223372036854775807) %% c.slices as slice,
         count(*) as items
  from intake_row r
  join counted c on c.account_id = r.account_id
  group by 1, 2, 3
)
select account_id, slices, slice, items,
       row_number() over (order by account_id, slice)::integer as ordinal
from sliced

-- name: shards_insert
insert into batches_shard
  (job_id, account_id, ordinal, status, reason, cursor, total, pending, submitted, confirmed,
   failed, abandoned, in_doubt, bad_streak)
select %(job)s, account_id, ordinal, 'pending', '', 0, items, items, 0, 0, 0, 0, 0, 0
from intake_slice
order by ordinal

-- name: items_insert
-- Sorted by shard, then row: a shard's items lie together, in the order in which they are sent.
insert into batches_item (job_id, shard_id, seq, row_no, target, fields)
select %(job)s, s.id, row_number() over (partition by s.id order by r.row_no), r.row_no,
       r.target, string_to_array(r.fields, U&'\001F')
from intake_row r
join (select distinct account_id, slices from intake_slice) a on a.account_id = r.account_id
join intake_slice i on i.account_id = r.account_id
  and i.slice = (hashtextextended(r.target, 0) & 9223372036854775807) %% a.slices
join batches_shard s on s.job_id = %(job)s and s.ordinal = i.ordinal

-- name: rejections_insert
insert into batches_rejection (job_id, row_no, code, "column", value, text, params, fields)
select %(job)s, row_no, code, column_name, value, text, params, fields
from intake_bad
order by row_no

-- name: stage_accounts
-- For the report: who gets how many.
select a.guid, a.name, sum(i.items)::bigint, count(*)
from intake_slice i
join batches_account a on a.id = i.account_id
group by a.id
order by 3 desc, a.id
limit %(limit)s

-- name: job_clear
-- What an earlier reading of the file left; by shard, for items have no index on the job alone.
with gone_items as (
  delete from batches_item i
  using batches_shard s
  where s.job_id = %(job)s and i.shard_id = s.id
),
gone_rejections as (
  delete from batches_rejection where job_id = %(job)s
)
delete from batches_shard where job_id = %(job)s

-- name: intake_progress
-- No row: the job was discarded meanwhile, and there is nothing left to read for.
update batches_job set intake = %(report)s where id = %(job)s and status = 'preparing'

-- name: intake_lock
-- Held by the session: gone with a killed process, so the next one can start over.
select pg_try_advisory_lock(hashtextextended('batches.intake', %(job)s))

-- name: intake_lock_wait
select pg_advisory_lock(hashtextextended('batches.intake', %(job)s))

-- name: intake_unlock
select pg_advisory_unlock(hashtextextended('batches.intake', %(job)s))
