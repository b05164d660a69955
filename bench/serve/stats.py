"""Percentiles and medians, one definition for all programs here."""


def percentile(values, p):
    """Nearest rank: the smallest value that at least p percent are not above. None of nothing."""
    if not values:
        return None
    ordered = sorted(values)
    rank = -(-len(ordered) * p // 100)  # ceiling
    return ordered[min(len(ordered) - 1, max(0, int(rank) - 1))]


def median(values):
    if not values:
        return None
    v = sorted(values)
    n = len(v)
    return v[n // 2] if n % 2 else (v[n // 2 - 1] + v[n // 2]) / 2


def spread_percent(values):
    """(largest - smallest) / median."""
    m = median(values)
    return 100.0 * (max(values) - min(values)) / m if m else None


def show(x, digits=1):
    return "-" if x is None else "%.*f" % (digits, x)
