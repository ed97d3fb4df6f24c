#!lua flags=allow-oom
-- One heartbeat of a worker for itself and for every job it holds; harmless to run twice. Sets a missing lock again.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 record_ttl_ms  3 applied interval in ms or ''  then for each job: id, token, progress ('' = unchanged)
-- returns {registered (1|0), now_ms, answer, answer, …}: 'ok' | 'lost' | 'cancelled', in the order asked
--@include common
local worker, record_ttl = ARGV[1], integer(ARGV[2])
local refused = version_error()
if refused then return refused end
if not valid(worker) then return refuse_name('worker', worker) end
if not record_ttl or record_ttl < 1 then return redis.error_reply('UNSTUCKVALUE record_ttl_ms') end
local now, _, at = clock()
local active, workers, record = stem .. 'active', stem .. 'workers', stem .. 'worker:' .. worker
call('ZSCORE', active, '')
call('ZCARD', stem .. 'started')
call('ZSCORE', workers, worker)
call('SCARD', stem .. 'held:' .. worker)
local registered = call('HEXISTS', record, 'since')

call('ZADD', workers, at, worker)
if registered == 1 then
  if ARGV[3] ~= '' then call('HSET', record, 'applied_ms', ARGV[3]) end
  call('PEXPIRE', record, record_ttl)
end
local answers = {registered, now}
for i = 4, #ARGV, 3 do
  local id, token, progress = ARGV[i], ARGV[i + 1], ARGV[i + 2]
  local job = stem .. 'job:' .. id
  local body = redis.pcall('HMGET', job, 'state', 'token', 'lock', 'lock_ttl_ms', 'cancelled_at', 'started_at')
  if body.err or body[1] ~= 'active' or body[2] ~= token then
    answers[#answers + 1] = 'lost'
  else
    local ttl = integer(body[4])
    if call('ZADD', active, at, id) == 1 then -- the index had lost it: repair what a claim would have written
      call('ZADD', stem .. 'started', integer(body[6]) or now, id)
      call('SADD', stem .. 'held:' .. worker, id)
    end
    if body[3] == 'ttl' and ttl and ttl > 0 then call('SET', stem .. 'lock:' .. id, token, 'PX', ttl) end
    if progress ~= '' then
      call('HSET', job, 'heartbeat_at', at, 'progress', string.sub(progress, 1, 1024))
    else
      call('HSET', job, 'heartbeat_at', at)
    end
    answers[#answers + 1] = body[5] and 'cancelled' or 'ok'
  end
end
return answers
