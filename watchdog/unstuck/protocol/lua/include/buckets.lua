-- Histogram buckets: counts of observations, not cumulative; the exporter adds them up. A chain costs less than a table.
local function bucket(prefix, ms)
  return prefix .. (ms <= 50 and '50' or ms <= 100 and '100' or ms <= 250 and '250' or ms <= 500 and '500'
    or ms <= 1000 and '1000' or ms <= 2500 and '2500' or ms <= 5000 and '5000' or ms <= 10000 and '10000'
    or ms <= 30000 and '30000' or ms <= 60000 and '60000' or ms <= 120000 and '120000' or ms <= 300000 and '300000'
    or ms <= 600000 and '600000' or ms <= 1800000 and '1800000' or ms <= 3600000 and '3600000' or 'inf')
end
