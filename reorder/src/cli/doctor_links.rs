//! What `reorder doctor` says about a project: whether the last link of each of its programs was ordered.

use std::path::{Path, PathBuf};

use reorder_layout::configuration::ConfigurationFile;
use reorder_layout::last_link::{CACHE_FOLDER, FILE_PREFIX, LastLink, LinkOutcome};

use crate::cli::doctor_image::Check;

/// More programs than this are not listed.
const MAX_LISTED: usize = 12;

/// The last links of what is below `project`, the newest first.
pub(super) fn link_checks(project: &Path, configuration: &ConfigurationFile) -> Vec<Check> {
    let Ok(project) = project.canonicalize() else { return Vec::new() };
    let Some(cache) = cache(configuration) else { return Vec::new() };
    let mut links: Vec<LastLink> = std::fs::read_dir(cache)
        .into_iter()
        .flatten()
        .flatten()
        .filter(|entry| entry.file_name().to_string_lossy().starts_with(FILE_PREFIX))
        .filter_map(|entry| serde_json::from_slice(&std::fs::read(entry.path()).ok()?).ok())
        .filter(|link: &LastLink| is_below(&link.output, &project) && link.output.exists())
        .collect();
    links.sort_by(|one, other| (other.seconds, &one.output).cmp(&(one.seconds, &other.output)));
    links.truncate(MAX_LISTED);
    links.iter().map(|link| check(link, &project)).collect()
}

fn check(link: &LastLink, project: &Path) -> Check {
    let shown = link.output.strip_prefix(project).unwrap_or(&link.output);
    let name = format!("last link of {}", shown.display());
    match &link.outcome {
        LinkOutcome::Ordered { summary } => Check::fine(name, summary.as_str()),
        LinkOutcome::NotOrdered { reason, hint } => {
            let check = Check::failed(name, format!("not ordered: {reason}"));
            match hint {
                Some(hint) => check.hint(hint),
                None => check,
            }
        }
    }
}

fn is_below(output: &Path, project: &Path) -> bool {
    output.starts_with(project) || output.canonicalize().is_ok_and(|output| output.starts_with(project))
}

/// Where `reorder-ld` keeps its accounts, by the same rules.
fn cache(configuration: &ConfigurationFile) -> Option<PathBuf> {
    let variable = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty()).map(PathBuf::from);
    let configured = configuration.subtable("link").ok().flatten();
    let configured = configured.and_then(|link| link.get("cache")).and_then(|cache| cache.as_str());
    let located = |cache: &str| match cache {
        "off" => PathBuf::from(cache),
        cache => configuration.located(Path::new(cache)),
    };
    let chosen = variable("REORDER_CACHE").or_else(|| configured.map(located));
    match chosen {
        Some(chosen) => (chosen != Path::new("off")).then_some(chosen),
        None => {
            let absolute = |name: &str| variable(name).filter(|path| path.is_absolute());
            let cache =
                absolute("XDG_CACHE_HOME").or_else(|| absolute("HOME").map(|home| home.join(".cache")));
            cache.map(|cache| cache.join(CACHE_FOLDER))
        }
    }
}
