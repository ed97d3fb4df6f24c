#!lua flags=allow-oom
-- The straight case of complete_job and claim_job in one: look at everything, then write everything. Whatever is not straight
-- (a refusal, a conflict, a due or odd job, a bad argument, a repetition) changes nothing and answers 'apart': run both then.
-- This one runs for every job, so it does without the shared functions: making them costs a tenth of it.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 slot (the completion's is this and an f, the claim's this and a c)  3 op of the completion  4 id  5 token
--      6 expected version or ''  7 op of the claim (16 hex; also the nonce of the new token)
--      8 terms (result_ttl_ms, lock, lock_ttl_ms, heartbeat_ms, abort_after_ms, with blanks between)
-- returns {'completed', then the answer of claim_job: 'job' … or 'empty' …} | {'apart'}
local call, find, sub, format, max, ARGV = redis.call, string.find, string.sub, string.format, math.max, ARGV
local APART = {'apart'}
local meta = KEYS[1]
local stem = sub(meta, 1, -5)
local v = call('HGET', meta, 'v')
if v and v ~= '1' then return redis.error_reply('UNSTUCKVERSION ' .. v) end
if not find(meta, '^unstuck:{[^}]*}:meta$') then return redis.error_reply('UNSTUCKNAME meta key ' .. meta) end
local worker, id, token, expects, nonce, terms = ARGV[1], ARGV[4], ARGV[5], ARGV[6], ARGV[7], ARGV[8]
local result_ttl, lock, lock_ttl, beat, abort_after =
  string.match(terms, '^([1-9]%d*) (%l+) ([1-9]%d*) ([1-9]%d*) ([1-9]%d*)$')
if (lock ~= 'ttl' and lock ~= 'none') or #nonce ~= 16 or not find(nonce, '^%x+$')
  or #result_ttl > 13 or #lock_ttl > 13 or #beat > 13 or #abort_after > 13 then
  return APART
end
local ops, caller, started, ended = stem .. 'ops', worker .. ':' .. ARGV[2], nonce .. ' ', ARGV[3] .. ' '
local starting, ending = caller .. 'c', caller .. 'f'
local last = call('HMGET', ops, ending, starting)
local ended_before = last[1] and sub(last[1], 1, #ended) == ended
local started_before = last[2] and sub(last[2], 1, #started) == started
if ended_before and started_before then
--@include common
--@include starting
  local now = clock()
  local answer = repeat_claim(sub(last[2], #started + 1), now)
  table.insert(answer, 1, sub(last[1], #ended + 1))
  return answer
end
if ended_before or started_before then return APART end

-- The job that ends. Its body has this worker and token, so both have been found valid when it began.
local time = call('TIME')
local micros = time[1] .. sub('00000' .. time[2], -6)
local at = sub(micros, 1, -4)
local now = at + 0
local job = stem .. 'job:' .. id
local body = call('HMGET', job, 'state', 'token', 'worker', 'version', 'started_at', 'expected_by', 'cancelled_at')
local version, begun, deadline = body[4], body[5], body[6]
if body[1] ~= 'active' or body[2] ~= token or body[3] ~= worker or body[7] or not version or not find(version, '^%d+$')
  or #version > 15 or expects ~= '' and expects ~= version or not begun or #begun > 15 or not find(begun, '^%d+$') then
  return APART
end
local stamp = call('GET', stem .. 'stamp')
if not stamp or #stamp == #micros and stamp < micros and find(stamp, '^%d+$') then stamp = micros
elseif #stamp <= 16 and find(stamp, '^%d+$') then stamp = format('%d', max(stamp + 1, micros))
else return APART end
local ran = max(0, now - begun)

-- The job that begins, if there is one.
local pending, scheduled = stem .. 'pending', stem .. 'scheduled'
local next_id = call('LINDEX', pending, '-1')
local first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
local due = first[2] and tonumber(first[2])
if due and due <= now then return APART end
local next_job, fresh, expected, delay
local stats, run_bucket, delay_bucket, counters = stem .. 'stats', 'run_le_50', 'delay_le_50', nil
if ran > 50 then
--@include buckets
  run_bucket = bucket('run_le_', ran)
end
if next_id then
  next_job = stem .. 'job:' .. next_id
  if #next_id > 128 or not (find(next_id, '^%w+$') or find(next_id, '^[%w._:-]+$')) then return APART end
  fresh = redis.pcall('HMGET', next_job, 'state', 'payload', 'expected_ms', 'attempt', 'rescues', 'failures', 'version',
    'ready_at')
  if fresh.err or fresh[1] ~= 'pending' or not fresh[2] then return APART end
  fresh[3] = fresh[3] or '0'
  expected = fresh[3]
  for i = 3, 8 do
    if not fresh[i] or fresh[i] == '' or #fresh[i] > 15 then return APART end
  end
  if not find(table.concat(fresh, '', 3), '^%d+$') then return APART end
  delay = max(0, now - fresh[8])
  if delay > 50 then
--@include buckets
    delay_bucket = bucket('delay_le_', delay)
  end
  counters = call('HMGET', stats, 'completed', 'run_ms', run_bucket, 'unheard', 'started', 'delay_ms', delay_bucket)
else
  counters = call('HMGET', stats, 'completed', 'run_ms', run_bucket, 'unheard')
end
for i = 1, next_id and 7 or 4 do
  local number = counters[i] or '0'
  if number == '' or #number > 15 then return APART end
  counters[i] = number
end
if not find(table.concat(counters), '^%d+$') then return APART end

-- What will be written to has the right type, or raises now; the first write is the one to `events`, which then does.
local active, running, held, events = stem .. 'active', stem .. 'started', stem .. 'held:' .. worker, stem .. 'events'
call('ZCARD', active)
call('ZCARD', running)
call('SCARD', held)
if deadline or expected and expected ~= '0' then call('ZCARD', stem .. 'deadlines') end

call('XADD', events, 'MAXLEN', '~', '10000', '*', 'event', 'completed', 'job', id, 'worker', worker, 'token', token,
  'cause', '')
local unheard = counters[4]
local said = '{"id":"' .. id .. '","event":"completed","stamp":' .. stamp .. '}'
if call('PUBLISH', stem .. 'invalidate', said) == 0 then unheard = format('%d', unheard + 1) end
call('SETRANGE', stem .. 'stamp', '0', stamp)
local answer, kept
if next_id then -- before the other one ends: the worker's set never becomes empty in between
  local nth, versioned, by = format('%d', fresh[4] + 1), fresh[7] + 1, ''
  local next_token = nth .. '.' .. nonce
  call('RPOP', pending)
  call('HSET', next_job, 'state', 'active', 'attempt', nth, 'version', format('%d', versioned), 'token', next_token,
    'worker', worker, 'started_at', at, 'heartbeat_at', at, 'lock', lock, 'lock_ttl_ms', lock_ttl,
    'heartbeat_ms', beat, 'abort_after_ms', abort_after)
  if expected ~= '0' then
    by = format('%d', now + expected)
    call('HSET', next_job, 'expected_by', by)
    call('ZADD', stem .. 'deadlines', by, next_id)
  end
  if lock == 'ttl' then call('SET', stem .. 'lock:' .. next_id, next_token, 'PX', lock_ttl) end
  call('ZADD', active, at, next_id)
  call('ZADD', running, at, next_id)
  call('SADD', held, next_id)
  call('XADD', events, '*', 'event', 'acquired', 'job', next_id, 'worker', worker, 'token', next_token, 'cause', '')
  kept = started .. next_id .. ' ' .. next_token .. ' ' .. nth
  call('HSET', stats, 'completed', format('%d', counters[1] + 1), 'run_ms', format('%d', counters[2] + ran),
    run_bucket, format('%d', counters[3] + 1), 'unheard', unheard, 'started', format('%d', counters[5] + 1),
    'delay_ms', format('%d', counters[6] + delay), delay_bucket, format('%d', counters[7] + 1))
  answer = {'completed', 'job', next_id, next_token, fresh[4] + 1, fresh[2], now, tonumber(fresh[5]), tonumber(fresh[6]), by,
    versioned}
else
  call('DEL', stem .. 'wake')
  call('HSET', stats, 'completed', format('%d', counters[1] + 1), 'run_ms', format('%d', counters[2] + ran),
    run_bucket, format('%d', counters[3] + 1), 'unheard', unheard)
  answer = {'completed', 'empty', due and format('%d', due) or -1, now}
end
call('ZREM', active, id)
call('ZREM', running, id)
if deadline then call('ZREM', stem .. 'deadlines', id) end
call('SREM', held, id)
call('UNLINK', stem .. 'lock:' .. id, stem .. 'cache:' .. id)
call('HSET', job, 'state', 'done', 'version', format('%d', version + 1), 'finished_at', at)
call('HDEL', job, 'payload', 'progress')
if deadline then call('HDEL', job, 'expected_by') end
call('PEXPIRE', job, result_ttl)
-- Last, so that nothing that stops a script half way (a right that its user lacks) is ever answered as done.
if kept then call('HSET', ops, ending, ended .. 'completed', starting, kept)
else call('HSET', ops, ending, ended .. 'completed') end
return answer
