#!lua flags=allow-oom
-- complete_job and claim_job for some slots of one worker, where the case is straight: look at everything, then write
-- everything, so that what the slots have in common is read and written once. Any other slot (a refusal, a conflict, an odd job,
-- a bad argument, one part repeated) is answered 'apart', and nothing was changed for it: run both scripts then.
-- This one runs for every job, so it does without most of the shared functions: making them costs a tenth of it.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 worker  2 terms (result_ttl_ms, lock, lock_ttl_ms, heartbeat_ms, abort_after_ms, with blanks between), then for each of
--      at most 25 slots: slot (the completion's is this and an f, the claim's this and a c), op of the completion, id, token,
--      expected version or '', op of the claim (16 hex; also the nonce of the new token)
-- returns for each slot {'completed', then the answer of claim_job: 'job' … or 'empty' …} | {'apart'}
local call, find, sub, format = redis.call, string.find, string.sub, string.format
local max, unpack, ARGV = math.max, unpack, ARGV
local APART, answers = {'apart'}, {}
local meta, worker, slots = KEYS[1], ARGV[1], (#ARGV - 2) / 6
local stem = sub(meta, 1, -5)
local v = call('HGET', meta, 'v')
if v and v ~= '1' then return redis.error_reply('UNSTUCKVERSION ' .. v) end
if not v and not find(meta, '^unstuck:{[^}]*}:meta$') then return redis.error_reply('UNSTUCKNAME meta key ' .. meta) end
if slots < 1 or slots > 25 or slots % 1 ~= 0 then return redis.error_reply('UNSTUCKVALUE number of slots ' .. slots) end
local fields = {} -- of `ops`
for i = 1, slots do
  answers[i] = APART
  local caller = worker .. ':' .. ARGV[6 * i - 3]
  fields[2 * i - 1], fields[2 * i] = caller .. 'f', caller .. 'c'
end
local result_ttl, lock, lock_ttl, beat, abort_after =
  string.match(ARGV[2], '^([1-9]%d*) (%l+) ([1-9]%d*) ([1-9]%d*) ([1-9]%d*)$')
if (lock ~= 'ttl' and lock ~= 'none')
  or #result_ttl > 13 or #lock_ttl > 13 or #beat > 13 or #abort_after > 13 then
  return answers
end

local function after(text)
  return text == '0' and '1' or text == '1' and '2' or text == '2' and '3' or format('%d', text + 1)
end

local function plus(text, number) return number == 0 and text or format('%d', text + number) end

-- The jobs that end. The body of each has this worker and token, so both have been found valid when it began.
local ops = stem .. 'ops'
local last = call('HMGET', ops, unpack(fields))
local ending, ends, repeated = {}, 0, nil
local known, taken = {}, {} -- ids and slots: none twice
for i = 1, slots do
  local from = 6 * i - 4
  local ended, started, end_op, nonce = last[2 * i - 1], last[2 * i], ARGV[from + 2] .. ' ', ARGV[from + 6]
  ended = ended and sub(ended, 1, #end_op) == end_op
  started = started and sub(started, 1, #nonce + 1) == nonce .. ' '
  if ended and started then
    repeated = repeated or {}
    repeated[#repeated + 1] = i
  elseif not ended and not started and not taken[fields[2 * i]] and #nonce == 16 and find(nonce, '^%x+$') then
    local id, expects = ARGV[from + 3], ARGV[from + 5]
    local body = redis.pcall('HMGET', stem .. 'job:' .. id, 'state', 'token', 'worker', 'version', 'started_at',
      'expected_by', 'cancelled_at')
    local version, begun = body[4], body[5]
    if body[1] == 'active' and body[2] == ARGV[from + 4] and body[3] == worker and not body[7] and not known[id]
      and version and version ~= '' and #version <= 15 and (expects == '' or expects == version)
      and begun and begun ~= '' and #begun <= 15 and find(version .. begun, '^%d+$') then
      ends = ends + 1
      body[8] = from -- where its slot stands in ARGV
      ending[ends] = body
      if slots > 1 then known[id], taken[fields[2 * i]] = true, true end
    end
  end
end
if repeated then
--@include common
--@include starting
  local now = clock()
  for i = 1, #repeated do
    local k = repeated[i]
    local answer = repeat_claim(sub(last[2 * k], #ARGV[6 * k + 2] + 2), now)
    table.insert(answer, 1, sub(last[2 * k - 1], #ARGV[6 * k - 2] + 2))
    answers[k] = answer
  end
end
if ends == 0 then return answers end
local time = call('TIME')
local micros = time[1] .. sub('00000' .. time[2], -6)
local at = sub(micros, 1, -4)
local now = at + 0
local stamp = call('GET', stem .. 'stamp')
if not stamp or #stamp == #micros and stamp < micros and find(stamp, '^%d+$') then stamp = micros
elseif #stamp <= 16 and find(stamp, '^%d+$') then stamp = format('%d', max(stamp + 1, micros))
else return answers end

-- The jobs that begin, as many as there are. From the first odd one on, it is for claim_job to say what becomes of them.
local pending, scheduled = stem .. 'pending', stem .. 'scheduled'
local active, running, held, events = stem .. 'active', stem .. 'started', stem .. 'held:' .. worker, stem .. 'events'
local first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
local due = first[2] and tonumber(first[2])
if due and due <= now then
--@include common
--@include placing
--@include promoting
  call('ZCARD', active)
  call('ZCARD', running)
  call('SCARD', held)
  call('ZCARD', stem .. 'deadlines')
  call('HLEN', stem .. 'stats')
  check_places()
  promote(at, 100)
  first = call('ZRANGE', scheduled, '0', '0', 'WITHSCORES')
  due = first[2] and tonumber(first[2])
end
local waiting = ends == 1 and {call('LINDEX', pending, '-1') or nil} or call('LRANGE', pending, '-' .. ends, '-1')
local fresh, begins = {}, 0
for k = 1, #waiting do
  local id = waiting[#waiting + 1 - k]
  local body = not known[id] and #id <= 128 and (find(id, '^%w+$') or find(id, '^[%w._:-]+$'))
    and redis.pcall('HMGET', stem .. 'job:' .. id, 'state', 'payload', 'expected_ms', 'attempt', 'rescues', 'failures',
      'version', 'ready_at')
  local straight = body and body[1] == 'pending' and body[2]
  if straight then
    body[3] = body[3] or '0'
    for i = 3, 8 do
      if not body[i] or body[i] == '' or #body[i] > 15 then straight = false end
    end
  end
  if not straight or not find(table.concat(body, '', 3), '^%d+$') then
    ends = k - 1
    break
  end
  fresh[k], begins = body, k
  if ends > 1 then known[id] = true end
end
if ends == 0 then return answers end

-- What will be counted. Buckets beyond the first are seldom: `others` has their names and how often.
--@include buckets
local ran, waited, deadlines, others = 0, 0, false, nil
local run_bucket, run_count, delay_bucket, delay_count = nil, 0, 'delay_le_50', 0
local function other(name)
  others = others or {}
  others[name] = (others[name] or 0) + 1
end
for k = 1, ends do
  local body = ending[k]
  local ms = max(0, now - body[5])
  local name = ms <= 50 and 'run_le_50' or bucket('run_le_', ms)
  run_bucket = run_bucket or name
  if name == run_bucket then run_count = run_count + 1 else other(name) end
  ran, deadlines = ran + ms, deadlines or body[6]
end
for k = 1, begins do
  local body = fresh[k]
  local ms = max(0, now - body[8])
  local name = ms <= 50 and 'delay_le_50' or bucket('delay_le_', ms)
  if k == 1 then delay_bucket = name end
  if name == delay_bucket then delay_count = delay_count + 1 else other(name) end
  waited, deadlines = waited + ms, deadlines or body[3] ~= '0'
end
local stats = stem .. 'stats'
local counts = call('HMGET', stats, 'completed', 'run_ms', run_bucket, 'unheard', 'started', 'delay_ms', delay_bucket)
for i = 1, 7 do
  local number = counts[i] or '0'
  if number == '' or #number > 15 then return answers end
  counts[i] = number
end
if not find(table.concat(counts), '^%d+$') then return answers end
if others then
  for name, count in pairs(others) do
    local number = call('HGET', stats, name) or '0'
    if #number > 15 or not find(number, '^%d+$') then return answers end
    others[name] = format('%d', number + count)
  end
end

-- What will be written to has the right type, or raises now; the first write is the one to `events`, which then does.
call('ZCARD', active)
call('ZCARD', running)
call('SCARD', held)
if deadlines then call('ZCARD', stem .. 'deadlines') end

local unheard, ended, gone = 0, {''}, {'', ''}
for k = 1, ends do
  local from = ending[k][8]
  local id, token = ARGV[from + 3], ARGV[from + 4]
  ended[k], gone[2 * k - 1], gone[2 * k] = id, stem .. 'lock:' .. id, stem .. 'cache:' .. id
  if k == 1 then
    call('XADD', events, 'MAXLEN', '~', '10000', '*', 'event', 'completed', 'job', id, 'worker', worker, 'token', token,
      'cause', '')
  else
    call('XADD', events, '*', 'event', 'completed', 'job', id, 'worker', worker, 'token', token, 'cause', '')
  end
  local said = '{"id":"' .. id .. '","event":"completed","stamp":' .. stamp .. '}'
  if call('PUBLISH', stem .. 'invalidate', said) == 0 then unheard = unheard + 1 end
end
unheard = plus(counts[4], unheard)
call('SETRANGE', stem .. 'stamp', '0', stamp)
local kept = {}
if begins > 0 then -- before the others end: the worker's set never becomes empty in between
  local scores, ids = {'', ''}, {''}
  for k = 1, begins do
    local id = waiting[#waiting + 1 - k]
    ids[k], scores[2 * k - 1], scores[2 * k] = id, at, id
  end
  call('ZADD', active, unpack(scores))
  call('ZADD', running, unpack(scores))
  call('SADD', held, unpack(ids))
  for k = 1, begins do
    local id, body, from, expected_by = ids[k], fresh[k], ending[k][8], ''
    local job, nth, version, nonce = stem .. 'job:' .. id, after(body[4]), after(body[7]), ARGV[from + 6]
    local token = nth .. '.' .. nonce
    call('HSET', job, 'state', 'active', 'attempt', nth, 'version', version, 'token', token,
      'worker', worker, 'started_at', at, 'heartbeat_at', at, 'lock', lock, 'lock_ttl_ms', lock_ttl,
      'heartbeat_ms', beat, 'abort_after_ms', abort_after)
    if body[3] ~= '0' then
      expected_by = format('%d', now + body[3])
      call('HSET', job, 'expected_by', expected_by)
      call('ZADD', stem .. 'deadlines', expected_by, id)
    end
    if lock == 'ttl' then call('SET', stem .. 'lock:' .. id, token, 'PX', lock_ttl) end
    call('XADD', events, '*', 'event', 'acquired', 'job', id, 'worker', worker, 'token', token, 'cause', '')
    kept[k] = nonce .. ' ' .. id .. ' ' .. token .. ' ' .. nth
    answers[(from + 4) / 6] = {'completed', 'job', id, token, body[4] + 1, body[2], now, tonumber(body[5]),
      tonumber(body[6]), expected_by, body[7] + 1}
  end
  if begins == 1 then call('RPOP', pending) else call('RPOP', pending, begins) end
  call('HSET', stats, 'completed', plus(counts[1], ends), 'run_ms', plus(counts[2], ran),
    run_bucket, plus(counts[3], run_count), 'unheard', unheard, 'started', plus(counts[5], begins),
    'delay_ms', plus(counts[6], waited), delay_bucket, plus(counts[7], delay_count))
else
  call('HSET', stats, 'completed', plus(counts[1], ends), 'run_ms', plus(counts[2], ran),
    run_bucket, plus(counts[3], run_count), 'unheard', unheard)
end
if others then
  for name, number in pairs(others) do call('HSET', stats, name, number) end
end
if begins < ends then
  call('DEL', stem .. 'wake')
  local empty = {'completed', 'empty', due and format('%d', due) or -1, now}
  for k = begins + 1, ends do answers[(ending[k][8] + 4) / 6] = empty end
end
call('ZREM', running, unpack(ended))
call('SREM', held, unpack(ended))
call('UNLINK', unpack(gone))
local answered, n = {'', '', kept[1], kept[1]}, 0
for k = 1, ends do
  local id, body = ended[k], ending[k]
  local job, from = stem .. 'job:' .. id, body[8]
  if body[6] then call('ZREM', stem .. 'deadlines', id) end
  call('HSET', job, 'state', 'done', 'version', after(body[4]), 'finished_at', at)
  call('HDEL', job, 'payload', 'progress')
  if body[6] then call('HDEL', job, 'expected_by') end
  call('PEXPIRE', job, result_ttl)
  local field = (from + 4) / 3
  answered[n + 1], answered[n + 2], n = fields[field - 1], ARGV[from + 2] .. ' completed', n + 2
  if kept[k] then answered[n + 1], answered[n + 2], n = fields[field], kept[k], n + 2 end
end
call('ZREM', active, unpack(ended)) -- see leave_active
-- Last, so that nothing that stops a script half way (a right that its user lacks) is ever answered as done.
call('HSET', ops, unpack(answered))
return answers
