#!lua
-- Move one stuck RQ job: back to the front of its queue, to the failed registry past max_rescues, or, where RQ itself has
-- already taken the job further, only its left-over lease away. Redis does not roll back: every check, every type and
-- every number comes before the first write to a key of RQ. No allow-oom: a full Redis refuses the whole script.
-- KEYS 1 unstuck:{rq/Q}:fence  2 unstuck:{rq/Q}:rescues  3 unstuck:{rq/Q}:events
--      4 rq:wip:Q  5 rq:queue:Q  6 rq:queue:Q:intermediate  7 rq:failed:Q  8 rq:clean_registries:Q  9 rq:suspended
--      10 rq:job:<job>  11 rq:executions:<job>  12 rq:execution:<job>:<execution>  13 rq:results:<job>
--      14 rq:worker:<worker>  15 rq:worker:<worker>:executions  16 rq:job:<job>:dependents  17 rq:job:<job>:dependencies
-- ARGV 1 epoch  2 run id  3 replication id  4 value of our hold on KEYS[8]  5 its life in ms  6 queue  7 job  8 execution
--      9 worker ('' unknown)  10 channel of the worker  11 judged lease end  12 judged last_heartbeat of the job
--      13 of the execution ('' unknown)  14 of the worker ('' unknown)  15 reason  16 max_rescues  17 life of the rescue
--      counts in ms  18 RQ's default failure ttl in s  19 failure text as RQ stores it (base64 of zlib)
-- returns {'requeued' | 'dead_lettered' | 'lock_released' | 'lost_race' | 'skipped', cause, rescues}
--       | {'deposed', epoch in the fence, 0}
local epoch, mine, queue, job, execution, worker, reason =
  tonumber(ARGV[1]), ARGV[4], ARGV[6], ARGV[7], ARGV[8], ARGV[9], ARGV[15]
local member = job .. ':' .. execution
local FREE = {finished = true, failed = true, stopped = true, canceled = true, scheduled = true, deferred = true}

local function skipped(cause) return {'skipped', cause, 0} end
local function lost(cause) return {'lost_race', cause, 0} end
local function whole(text)
  if text and #text <= 15 and string.find(text, '^%-?%d+$') then return tonumber(text) end
  return nil
end
local function iso(seconds, micros) -- as RQ writes times; civil date from days since 1970, all in integers
  local days = math.floor(seconds / 86400)
  local rest = seconds - days * 86400
  local z = days + 719468
  local era = math.floor(z / 146097)
  local doe = z - era * 146097
  local yoe = math.floor((doe - math.floor(doe / 1460) + math.floor(doe / 36524) - math.floor(doe / 146096)) / 365)
  local doy = doe - (365 * yoe + math.floor(yoe / 4) - math.floor(yoe / 100))
  local mp = math.floor((5 * doy + 2) / 153)
  local month = mp < 10 and mp + 3 or mp - 9
  local year = yoe + era * 400 + (month <= 2 and 1 or 0)
  return string.format('%04d-%02d-%02dT%02d:%02d:%02d.%06dZ', year, month, doy - math.floor((153 * mp + 2) / 5) + 1,
    math.floor(rest / 3600), math.floor(rest % 3600 / 60), rest % 60, micros)
end

-- Whether we may act at all.
local fence_type = redis.call('TYPE', KEYS[1]).ok
if fence_type ~= 'none' and fence_type ~= 'string' then return skipped('wrong_type') end
local fence = redis.call('GET', KEYS[1])
if fence and not tonumber(fence) then return skipped('wrong_type') end
if fence and tonumber(fence) > epoch then return {'deposed', fence, 0} end
local info = redis.pcall('INFO', 'server', 'replication')
if type(info) ~= 'string' then return skipped('no_rights') end
if string.match(info, 'run_id:(%w+)') ~= ARGV[2] then return lost('run_id') end
if string.match(info, 'master_replid:(%w+)') ~= ARGV[3] then return lost('replication_id') end
if not fence or tonumber(fence) < epoch then redis.call('SET', KEYS[1], ARGV[1]) end
if redis.call('EXISTS', KEYS[9]) == 1 then return skipped('paused') end

local TYPES = {[2] = 'hash', [3] = 'stream', [4] = 'zset', [5] = 'list', [6] = 'list', [7] = 'zset', [8] = 'string',
  [10] = 'hash', [11] = 'zset', [12] = 'hash', [13] = 'stream', [14] = 'hash', [15] = 'set'}
local there = {}
for i, wanted in pairs(TYPES) do
  local found = redis.call('TYPE', KEYS[i]).ok
  there[i] = found ~= 'none'
  if there[i] and found ~= wanted then return skipped('wrong_type') end
end
local cleaner = redis.call('GET', KEYS[8])
if cleaner and cleaner ~= mine then return skipped('library_cleaner_active') end

-- Whether the lease is still the one that was judged.
local now = redis.call('TIME')
local seconds, micros = tonumber(now[1]), tonumber(now[2])
local lease_end = redis.call('ZSCORE', KEYS[4], member)
if not lease_end then return lost('state') end
if tonumber(lease_end) ~= tonumber(ARGV[11]) then return lost('heartbeat') end
if (reason == 'lock_expired' or reason == 'never_started') and tonumber(lease_end) > seconds then return lost('lock') end
if not there[10] then return skipped('quarantined') end
local body = redis.call('HMGET', KEYS[10], 'status', 'last_heartbeat', 'worker_name', 'origin', 'rate_limit_key',
  'retries_left', 'ttl', 'failure_ttl')
local status = body[1] or ''
if (body[2] or '') ~= ARGV[12] then return lost('heartbeat') end
local run = redis.call('HMGET', KEYS[12], 'last_heartbeat', 'worker_name')
if run[1] and ARGV[13] ~= '' and run[1] ~= ARGV[13] then return lost('heartbeat') end
if run[2] and run[2] ~= '' and run[2] ~= worker then return lost('worker') end

-- RQ has taken the job further and its lease is over: RQ's own cleaner would drop such an entry without a look at anybody.
local left_over = FREE[status] or false
if left_over and tonumber(lease_end) >= seconds then return lost('state') end

-- Whether its worker is still gone. A live worker of the same name is no sign of life where it provably does not run this
-- attempt: it was born after the last beat, or it is idle. Its own subscription is then allowed, a second one never.
if worker ~= '' and not left_over then
  local record = redis.call('HMGET', KEYS[14], 'state', 'birth', 'death', 'last_heartbeat')
  local born_later = record[2] and body[3] == worker and (body[2] or '') ~= '' and record[2] > body[2]
  local alive = there[14] and not record[3]
  local elsewhere = alive and (born_later or record[1] == 'idle')
  if alive and reason == 'worker_dead' and not born_later then return lost('worker') end
  if alive and not elsewhere and ARGV[14] ~= '' and (record[4] or '') ~= ARGV[14] then return lost('worker') end
  local listeners = redis.pcall('PUBSUB', 'NUMSUB', ARGV[10])
  if listeners[2] and tonumber(listeners[2]) > (elsewhere and 1 or 0) then return lost('connection') end
end

-- What is to be done with it.
if not left_over then
  if status ~= 'started' and status ~= 'queued' then return skipped('status') end
  if body[5] and body[5] ~= '' then return skipped('rate_limited') end
  if body[4] and body[4] ~= '' and body[4] ~= queue then return skipped('origin') end
  for _, other in ipairs(redis.call('ZRANGE', KEYS[11], 0, 20)) do
    if other ~= execution and redis.call('ZSCORE', KEYS[4], job .. ':' .. other) then left_over = true end
  end
  if status == 'queued' then
    if redis.call('LPOS', KEYS[5], job) then left_over = true end
  elseif redis.call('LPOS', KEYS[5], job, 'MAXLEN', 1000) or redis.call('LPOS', KEYS[5], job, 'RANK', -1, 'MAXLEN', 1000) then
    return lost('pending')
  end
end
local rescued = redis.call('HGET', KEYS[2], job)
local rescues = rescued and whole(rescued) or 0
if rescued and not whole(rescued) then return skipped('wrong_type') end
local retries, ttl, failure_ttl = whole(body[6]), whole(body[7]), whole(body[8])
if (body[6] and body[6] ~= '' and not retries) or (body[8] and body[8] ~= '' and not failure_ttl) then
  return skipped('wrong_type')
end

-- The act. RQ's own cleaner is kept out meanwhile; the caller gives this back when its batch is done.
if not cleaner then redis.call('SET', KEYS[8], mine, 'PX', ARGV[5]) end
local function let_go()
  redis.call('ZREM', KEYS[4], member)
  redis.call('ZREM', KEYS[11], execution)
  redis.call('DEL', KEYS[12])
  if worker ~= '' then redis.call('SREM', KEYS[15], member) end
end
local function note(event, cause)
  redis.call('XADD', KEYS[3], 'MAXLEN', '~', 10000, '*', 'event', event, 'job', job, 'worker', worker,
    'token', execution, 'cause', cause, 'rescues', rescues)
end
local function expire(ttl_seconds)
  for _, i in ipairs({10, 16, 17}) do redis.call('EXPIRE', KEYS[i], ttl_seconds) end
end

if left_over then
  let_go()
  note('lock_released', 'debris')
  return {'lock_released', 'debris', rescues}
end

rescues = rescues + 1
local moment = iso(seconds, micros)
if rescues <= tonumber(ARGV[16]) then
  redis.call('LPUSH', KEYS[5], job) -- RQ takes from the left
  redis.call('HSET', KEYS[10], 'status', 'queued', 'enqueued_at', moment, 'started_at', '', 'ended_at', '', 'worker_name', '')
  if retries and retries > 0 then redis.call('HSET', KEYS[10], 'retries_left', string.format('%d', retries - 1)) end
  if ttl and ttl > 0 then expire(ttl) end
  redis.call('LREM', KEYS[6], 1, job)
  let_go()
  redis.call('HSET', KEYS[2], job, rescues)
  redis.call('PEXPIRE', KEYS[2], ARGV[17])
  note('requeued', reason)
  return {'requeued', '', rescues}
end

-- A job that asked for failure_ttl 0 (forget it at once) is kept for a day: this is the evidence.
if failure_ttl == 0 then failure_ttl = 86400 end
local kept = failure_ttl or tonumber(ARGV[18])
redis.call('ZADD', KEYS[7], kept < 0 and kept or seconds + kept, job)
redis.call('HSET', KEYS[10], 'status', 'failed', 'ended_at', moment)
redis.call('XADD', KEYS[13], 'MAXLEN', '~', 10, '*', 'type', 2, 'worker_name', worker, 'exc_string', ARGV[19],
  'execution_id', execution, 'execution_ended_at', string.format('%d.%06d', seconds, micros))
if failure_ttl and failure_ttl < 0 then redis.call('PERSIST', KEYS[13])
elseif failure_ttl then redis.call('EXPIRE', KEYS[13], failure_ttl) end
if kept > 0 then expire(kept) end
redis.call('LREM', KEYS[6], 1, job)
let_go()
redis.call('HDEL', KEYS[2], job) -- who retries it by hand starts anew
note('dead_lettered', reason)
return {'dead_lettered', 'max_rescues', rescues}
