//! The state of the system during a measurement: settings that decide what one fault loads, and other load.

use std::fs;
use std::path::Path;

use serde::Serialize;

/// Facts about the system; absent where the system does not report them.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct Surroundings {
    /// Release of the kernel.
    pub kernel: Option<String>,
    /// Processors that are on.
    pub processors: usize,
    /// Mean number of runnable tasks over the last minute, before the first run.
    pub load_average: Option<f64>,
    /// `always`, `madvise` or `never`: whether text may be mapped in pages of 2 MiB.
    pub transparent_huge_pages: Option<String>,
    /// Bytes around a fault that are mapped if they are in memory; readable with debugfs alone.
    pub fault_around_bytes: Option<u64>,
    /// How the clock rate of the first processor is chosen.
    pub frequency_governor: Option<String>,
    /// Who may use the kernel's counters: `kernel.perf_event_paranoid`.
    pub perf_event_paranoid: Option<i64>,
}

impl Surroundings {
    /// Reads the state of this system.
    #[must_use]
    pub fn of_this_machine() -> Self {
        let read = |path: &str| fs::read_to_string(Path::new(path)).ok().map(|text| text.trim().to_owned());
        Self {
            kernel: read("/proc/sys/kernel/osrelease"),
            processors: std::thread::available_parallelism().map_or(1, usize::from),
            load_average: read("/proc/loadavg").and_then(|text| text.split(' ').next()?.parse().ok()),
            transparent_huge_pages: read("/sys/kernel/mm/transparent_hugepage/enabled")
                .and_then(|text| chosen(&text)),
            fault_around_bytes: read("/sys/kernel/debug/fault_around_bytes")
                .and_then(|text| text.parse().ok()),
            frequency_governor: read("/sys/devices/system/cpu/cpu0/cpufreq/scaling_governor"),
            perf_event_paranoid: read("/proc/sys/kernel/perf_event_paranoid")
                .and_then(|text| text.parse().ok()),
        }
    }

    /// Whether other processes keep the processors busy.
    #[must_use]
    pub fn is_busy(&self) -> bool {
        self.load_average.is_some_and(|load| load > self.processors as f64 / 2.0)
    }

    /// In a line.
    #[must_use]
    pub fn text(&self) -> String {
        let mut parts = vec![match &self.kernel {
            Some(kernel) => format!("Linux {kernel}"),
            None => "Linux".to_owned(),
        }];
        parts.push(format!("{} processors", self.processors));
        parts.extend(self.load_average.map(|load| format!("load {load:.1}")));
        parts.extend(self.transparent_huge_pages.as_ref().map(|choice| format!("huge pages {choice}")));
        parts.extend(self.fault_around_bytes.map(|bytes| format!("fault-around {} KiB", bytes / 1024)));
        parts.extend(self.frequency_governor.as_ref().map(|governor| format!("governor {governor}")));
        parts.join(", ")
    }
}

/// The word in brackets of `always [madvise] never`.
fn chosen(choices: &str) -> Option<String> {
    let (_, rest) = choices.split_once('[')?;
    rest.split_once(']').map(|(word, _)| word.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_tells_something() {
        let found = Surroundings::of_this_machine();
        assert!(found.processors > 0 && found.kernel.is_some(), "{found:?}");
        assert!(found.text().starts_with("Linux "));
        assert_eq!(chosen("always [madvise] never").as_deref(), Some("madvise"));
        let busy = Surroundings { processors: 2, load_average: Some(3.0), ..Surroundings::default() };
        assert!(busy.is_busy() && !Surroundings { load_average: Some(0.5), ..busy }.is_busy());
    }
}
