"""Statements of Temucin et al., CLUSTER'23, on their figures: for paper_figures.py (simulated) and paper_shm.py (shared memory)."""

PAPER = "Temucin et al., CLUSTER'23, figure"
TABLE_I = ((512 << 10, 1), (2 << 20, 2), (8 << 20, 4), (32 << 20, 8), (128 << 20, 16))  # (size, groups below that size); above: 32
DELAY_US = 4000  # 4 % of 100 ms
TIMER_US = 3000  # figure 9, "arbitrary"
DELTAS_US = (10, 35, 100)  # figure 13
APART = 0.0615  # largest difference of these timers
SWEEP_DELTA_US = 35  # our choice: not in the paper's text

SHOWS = {
    "03": "More partitions take longer while messages are small, and less when they are large.",
    "06": "Fewer transfers are better while messages are small, more from 16 KiB on; 1.0 from 4 MiB on.",
    "07": "One queue pair is enough up to 64 KiB; above, one for each partition is better.",
    "08": "**Negative: 4 partitions lose below 2 KiB and above 32 KiB.** 32: 2.17 at most, at 128 KiB. 128: up to 8.80.",
    "09": "The baseline is best; Table I's groups are below it and above the wire; the timer comes near the baseline.",
    "10": "31 of 32 partitions of 8 MiB travel before the last one is ready.",
    "11": "Of 128 MiB about 3/8 are early.",
    "12": "32 partitions: 35 us are enough; more with more partitions.",
    "13": f"10, 35 and 100 us: at most {APART:.2%} apart.".replace("%", " %"),
    "14": "At 1 MB 1.60 (10 us of noise), 1.63 (40 us). **Negative: 1.04 at 400 us, next to nothing; large messages gain nothing.**",
}


def ploggp(size: int, partitions: int) -> int:
    """@return the groups of the paper's Table I"""
    return min(next((groups for below, groups in TABLE_I if size < below), 32), partitions)
