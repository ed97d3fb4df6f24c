#!lua flags=allow-oom
-- Delete one dead or quarantined job for good.
-- KEYS 1 unstuck:{Q}:meta
-- ARGV 1 id  2 op
-- returns {'dropped' | 'not_dead' | 'missing', state}
--@include common
local id, op = ARGV[1], ARGV[2]
local refused = version_error()
if refused then return refused end
if recalled('person', 'drop', op) == id then return {'dropped', ''} end
local job = stem .. 'job:' .. id
local body = redis.pcall('HMGET', job, 'state')
local buried = redis.call('ZSCORE', stem .. 'dead', id)
local apart = redis.call('LPOS', stem .. 'quarantine', id)
redis.call('XLEN', stem .. 'events')
local state = not body.err and body[1] or ''
if state ~= '' and state ~= 'dead' and state ~= 'quarantine' then
  if buried then redis.call('ZREM', stem .. 'dead', id) end -- an entry of a job that is elsewhere is debris
  if apart then redis.call('LREM', stem .. 'quarantine', 0, id) end
  return {'not_dead', state}
end
if not buried and not apart then return {'missing', state} end
redis.call('UNLINK', job)
if buried then redis.call('ZREM', stem .. 'dead', id) end
if apart then redis.call('LREM', stem .. 'quarantine', 0, id) end
remember('person', 'drop', op, id)
note('dropped', id, '', '', 'by hand')
return {'dropped', ''}
