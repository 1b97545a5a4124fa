//! How much memory calls and replies may take.

/// What is assumed where the system does not tell its memory, in octets.
const UNKNOWN_RAM: usize = 1 << 30;
/// The least that is any use, in octets: a few calls of the largest size at a time.
const LEAST: usize = 16 << 20;

/// The budget in octets: what was asked for, or a quarter of the RAM.
pub(super) fn budget(asked: Option<usize>) -> usize {
    asked.unwrap_or_else(|| ram().unwrap_or(UNKNOWN_RAM) / 4).max(LEAST)
}

fn ram() -> Option<usize> {
    parse(&std::fs::read_to_string("/proc/meminfo").ok()?)
}

fn parse(meminfo: &str) -> Option<usize> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix("kB")?.trim().parse::<usize>().ok()?.checked_mul(1024)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_budget_is_a_quarter_of_what_there_is() {
        assert_eq!(parse("MemTotal:       1024 kB\nMemFree: 1 kB\n"), Some(1 << 20));
        assert_eq!(parse("nonsense"), None);
        assert_eq!(budget(Some(1)), LEAST);
        assert_eq!(budget(Some(1 << 30)), 1 << 30);
    }
}
