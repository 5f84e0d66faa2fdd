//! `--timings` and `-vv`: the spans and events of the pipeline, printed on stderr.
//!
//! Phases open `tracing` spans named as in ARCHITECTURE; without these flags there is no subscriber and they cost nothing.

use tracing_subscriber::fmt::format::{FmtSpan, Writer};
use tracing_subscriber::fmt::time::FormatTime;

use crate::cli::shared_args::SharedArguments;

/// Lines begin without the time of day. Switching the timer off would also remove the durations of spans.
struct NoTimeOfDay;

impl FormatTime for NoTimeOfDay {
    fn format_time(&self, _: &mut Writer<'_>) -> std::fmt::Result {
        Ok(())
    }
}

/// Installs the subscriber, if requested.
pub fn install(shared: &SharedArguments) {
    if !shared.timings && shared.verbose < 2 {
        return;
    }
    let level = if shared.verbose >= 2 { tracing::Level::DEBUG } else { tracing::Level::INFO };
    let spans = if shared.timings { FmtSpan::CLOSE } else { FmtSpan::NONE };
    let subscriber = tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .with_ansi(shared.colors_talk())
        .with_max_level(level)
        .with_span_events(spans)
        .with_target(false)
        .with_timer(NoTimeOfDay)
        .finish();
    // Fails if a caller of the library has installed its own subscriber, which then stays.
    let _ = tracing::subscriber::set_global_default(subscriber);
}
