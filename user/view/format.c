/* SPDX-License-Identifier: GPL-2.0-only OR BSD-2-Clause */
#include "format.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>

/* Three significant digits; the limits are where rounding would make a fourth one. */
static int decimals(double v)
{
	return v < 9.995 ? 2 : v < 99.95 ? 1 : 0;
}

const char *format_ms(char out[FORMAT_BYTES], double ms)
{
	double s = ms / 1000;
	uint64_t whole;

	if (!isfinite(ms)) {
		snprintf(out, FORMAT_BYTES, "-");
	} else if (ms < 999.5) {
		snprintf(out, FORMAT_BYTES, "%.*fms", ms < 0 ? 0 : decimals(ms), ms);
	} else if (s < 59.95) {
		snprintf(out, FORMAT_BYTES, "%.*fs", decimals(s), s);
	} else if (s < 3599.5) {
		whole = (uint64_t)(s + 0.5);
		snprintf(out, FORMAT_BYTES, "%" PRIu64 "m%02us", whole / 60, (unsigned)(whole % 60));
	} else if (s < 1e12) {
		whole = (uint64_t)(s / 60 + 0.5);
		snprintf(out, FORMAT_BYTES, "%" PRIu64 "h%02um", whole / 60, (unsigned)(whole % 60));
	} else {
		snprintf(out, FORMAT_BYTES, "-");
	}
	return out;
}

const char *format_count(char out[FORMAT_BYTES], int64_t count)
{
	static const char units[] = "kMGT";
	double v = (double)count;
	int unit = -1;

	if (count < 0) {
		snprintf(out, FORMAT_BYTES, "-");
		return out;
	}
	while (v >= (unit < 0 ? 1000 : 999.5) && unit < 3) {
		v /= 1000;
		unit++;
	}
	if (unit < 0)
		snprintf(out, FORMAT_BYTES, "%" PRId64, count);
	else
		snprintf(out, FORMAT_BYTES, "%.*f%c", decimals(v), v, units[unit]);
	return out;
}

const char *format_rate(char out[FORMAT_BYTES], double per_s)
{
	if (!isfinite(per_s) || per_s > 1e12)
		snprintf(out, FORMAT_BYTES, "-");
	else
		snprintf(out, FORMAT_BYTES, "%.*f", per_s < 0 ? 0 : decimals(per_s), per_s);
	return out;
}

const char *format_percent(char out[FORMAT_BYTES], double part)
{
	/* Never round up to a full cache: 99.6 % is not 100 %. */
	if (!isfinite(part))
		snprintf(out, FORMAT_BYTES, "-");
	else
		snprintf(out, FORMAT_BYTES, "%.0f%%", part < 1 && part > 0.99 ? 99.0 : part * 100);
	return out;
}
