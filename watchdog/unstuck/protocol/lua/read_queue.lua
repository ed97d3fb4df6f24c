#!lua flags=no-writes
-- One look at a queue: counts, ages and the candidates among its leases; nothing that grows with the healthy ones.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 stuck_after_ms  2 page (1..1000)  3 offset (candidates to skip)  4 deadline_grace_ms
-- returns a flat list of alternating name, value; candidates as lists (see queues/unstuck.py)
--@include common
local refused = version_error()
if refused then return refused end
local stuck_after, page, offset, grace = integer(ARGV[1]), integer(ARGV[2]), integer(ARGV[3]), integer(ARGV[4])
if not (stuck_after and page and offset and grace) or page < 1 or page > 1000 then
  return redis.error_reply('UNSTUCKVALUE stuck_after_ms, page, offset or deadline_grace_ms')
end
local now = clock()
local pending, active, workers = stem .. 'pending', stem .. 'active', stem .. 'workers'
local out = {'now', now}
local function put(name, value)
  out[#out + 1] = name
  out[#out + 1] = value
end

put('pending', redis.call('LLEN', pending))
put('scheduled', redis.call('ZCARD', stem .. 'scheduled'))
put('active', redis.call('ZCARD', active))
put('dead', redis.call('ZCARD', stem .. 'dead'))
put('quarantine', redis.call('LLEN', stem .. 'quarantine'))

-- The oldest waiting job is among the next to be taken (rescued ones go first and are young: look at ten).
local oldest = ''
local next_ids = redis.call('LRANGE', pending, -10, -1)
local double = {}
for i = 1, #next_ids do
  local body = redis.pcall('HMGET', stem .. 'job:' .. next_ids[i], 'ready_at', 'enqueued_at')
  if not body.err then
    local at = tonumber(body[1] or body[2] or '')
    if at and (oldest == '' or at < oldest) then oldest = at end
  end
  if redis.call('ZSCORE', active, next_ids[i]) then double[#double + 1] = next_ids[i] end
end
put('oldest_ready_at', oldest == '' and '' or whole(oldest))
put('in_two_places', double)
put('oldest_started', redis.call('ZRANGE', stem .. 'started', 0, 0, 'WITHSCORES'))
put('oldest_beat', redis.call('ZRANGE', active, 0, 0, 'WITHSCORES'))
put('oldest_dead', redis.call('ZRANGE', stem .. 'dead', 0, 0, 'WITHSCORES'))
put('next_due', redis.call('ZRANGE', stem .. 'scheduled', 0, 0, 'WITHSCORES'))
local ages = {}
for _, s in ipairs({1, 2.5, 5, 10, 15, 30, 60, 120, 300, 900}) do
  ages[#ages + 1] = redis.call('ZCOUNT', active, now - s * 1000, '+inf')
end
put('beat_ages', ages)
put('stats', redis.call('HGETALL', stem .. 'stats'))
put('pacing', redis.call('HGETALL', stem .. 'pacing'))
put('fence', redis.call('GET', stem .. 'fence') or '')
put('brake_release', redis.call('HGET', KEYS[1], 'brake_release_ms') or '')
put('listeners', redis.call('PUBSUB', 'NUMSUB', stem .. 'invalidate')[2])

-- Workers: who has a subscription now (one command per thousand), who is busy, who is lost.
local names = redis.call('ZRANGE', workers, 0, -1, 'WITHSCORES')
local connected, live, busy, gone = {}, 0, 0, {}
for from = 1, #names, 2000 do
  local channels, held = {}, {}
  for i = from, math.min(from + 1998, #names), 2 do
    channels[#channels + 1] = stem .. 'control:' .. names[i]
    if tonumber(names[i + 1]) > now - stuck_after then
      live = live + 1
      held[#held + 1] = stem .. 'held:' .. names[i]
    end
  end
  if #held > 0 then busy = busy + redis.call('EXISTS', unpack(held)) end
  local counts = redis.call('PUBSUB', 'SHARDNUMSUB', unpack(channels))
  for i = 2, #counts, 2 do
    local name = string.sub(counts[i - 1], #stem + 9)
    connected[name] = counts[i] > 0
    if counts[i] == 0 then gone[#gone + 1] = name end
  end
end
local records = {}
local function record_of(worker)
  if records[worker] == nil then
    local body = redis.pcall('HMGET', stem .. 'worker:' .. worker, 'since', 'control')
    records[worker] = {not body.err and body[1] and 1 or 0, not body.err and body[2] == '1' and 1 or 0}
  end
  return records[worker]
end
local departed = {}
for i = 1, #gone do -- it had said that it is subscribed, and is not: its process is gone, whatever its last beat
  local beat = redis.call('ZSCORE', workers, gone[i])
  if beat and tonumber(beat) > now - stuck_after and record_of(gone[i])[2] == 1 then
    live = live - 1
    departed[gone[i]] = true
    if redis.call('EXISTS', stem .. 'held:' .. gone[i]) == 1 then busy = busy - 1 end
  end
end
put('workers', {live, busy, #names / 2})

-- What polls, by the records of at most 200 live workers: slots, and the interval that each applies.
local stride, nth = math.max(1, math.ceil(live / 200)), 0
local told, slots, least, most, sum, alone, doubts = 0, 0, -1, -1, 0, 0, 0
for i = 1, #names, 2 do
  if tonumber(names[i + 1]) > now - stuck_after and not departed[names[i]] then
    if nth % stride == 0 then
      local body = redis.pcall('HMGET', stem .. 'worker:' .. names[i], 'concurrency', 'applied_ms', 'pacing_doubt',
        'pacing_doubts')
      local ms = not body.err and integer(body[2])
      if ms and ms > 0 then
        told, slots, sum = told + 1, slots + math.max(1, integer(body[1]) or 1), sum + ms
        if least < 0 or ms < least then least = ms end
        if ms > most then most = ms end
        if body[3] and body[3] ~= '' then alone = alone + 1 end
        doubts = doubts + (integer(body[4]) or 0)
      end
    end
    nth = nth + 1
  end
end
put('pollers', {told, slots, least, most, sum, alone, doubts})

-- Candidates: silent for stuck_after; with a beat that is that far in the future; past their deadline; held by a worker whose subscription has vanished.
local ids, seen = {}, {}
local function add(list)
  for i = 1, #list do
    if not seen[list[i]] then
      seen[list[i]] = true
      ids[#ids + 1] = list[i]
    end
  end
end
local silent = redis.call('ZRANGEBYSCORE', active, '-inf', now - stuck_after, 'LIMIT', offset, page)
add(silent)
-- Beats of the future: Redis' clock was set back. Who is alive beats anew at once; who is not is judged by the watch alone.
if offset == 0 then add(redis.call('ZRANGEBYSCORE', active, now + stuck_after, '+inf', 'LIMIT', 0, page)) end
local more = #silent == page
if offset == 0 then
  add(redis.call('ZRANGEBYSCORE', stem .. 'deadlines', '-inf', now - grace, 'LIMIT', 0, page))
  for i = 1, #gone do
    if #ids >= 2 * page then break end
    if record_of(gone[i])[2] == 1 then add(redis.call('SMEMBERS', stem .. 'held:' .. gone[i])) end
  end
end
local candidates = {}
for i = 1, #ids do
  local id = ids[i]
  local body = redis.pcall('HMGET', stem .. 'job:' .. id, 'state', 'token', 'worker', 'heartbeat_at', 'started_at', 'lock',
    'heartbeat_ms', 'abort_after_ms', 'expected_by', 'progress', 'rescues', 'attempt', 'cancelled_at')
  if body.err then body = {'wrong_type'} end
  local row = {id, redis.call('ZSCORE', active, id) or '', redis.call('PTTL', stem .. 'lock:' .. id)}
  local worker = body[3] or ''
  if worker ~= '' then
    local record = record_of(worker)
    row[4], row[5] = record[1], record[2]
    row[6] = connected[worker] == nil and -1 or (connected[worker] and 1 or 0)
    row[7] = redis.call('ZSCORE', workers, worker) or ''
  else
    row[4], row[5], row[6], row[7] = 0, 0, -1, ''
  end
  for k = 1, 13 do row[7 + k] = body[k] or '' end
  candidates[#candidates + 1] = row
end
put('more', more and 1 or 0)
put('candidates', candidates)
return out
