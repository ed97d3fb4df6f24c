-- Histogram buckets: counts of observations, not cumulative; the exporter adds them up.
local function bucket(prefix, ms)
  if ms <= 50 then return prefix .. '50' end -- most jobs: before the table is made
  local bounds = {100, 250, 500, 1000, 2500, 5000, 10000, 30000, 60000, 120000, 300000, 600000, 1800000, 3600000}
  for i = 1, #bounds do
    if ms <= bounds[i] then return prefix .. bounds[i] end
  end
  return prefix .. 'inf'
end
