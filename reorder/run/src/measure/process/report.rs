//! The faults of a process as tables.

use super::{FaultCounts, FaultKind, FaultSource, PlaceFaults, ProcessFaults};
use reorder_report::Width;
use reorder_report::table::{Table, counted};

/// Files with a line of their own; the others share one.
const MAX_FILES: usize = 8;

impl FaultKind {
    /// For people.
    #[must_use]
    pub fn title(self) -> &'static str {
        match self {
            Self::Text => "text",
            Self::Names => "names and symbols",
            Self::Relocations => "relocations",
            Self::ReadOnlyData => "read-only data",
            Self::WrittenData => "written data",
            Self::OtherFiles => "other files",
            Self::HeapAndStack => "heap and stack",
            Self::Kernel => "kernel pages",
            Self::Unmapped => "no longer mapped",
            Self::OtherProcesses => "other processes",
        }
    }
}

impl FaultSource {
    /// What the figures lack, for people.
    #[must_use]
    pub fn limit(self) -> Option<&'static str> {
        match self {
            Self::Events => None,
            Self::UserEvents => Some(
                "faults inside system calls are not counted; `sysctl kernel.perf_event_paranoid=1` as root shows them",
            ),
            Self::PageTable => Some(
                "the system forbids fault events; these are the pages in the page table at the end, including \
                 neighbours that faults brought in",
            ),
        }
    }

    /// What is counted.
    #[must_use]
    pub fn unit(self) -> &'static str {
        match self {
            Self::PageTable => "pages",
            Self::Events | Self::UserEvents => "faults",
        }
    }
}

impl ProcessFaults {
    /// A table by kind, one by file, and what limits them.
    #[must_use]
    pub fn text(&self, width: Width) -> String {
        let kinds = self.kinds_text("the whole process, by kind", width);
        format!("{}\n{kinds}", self.files_text(width))
    }

    /// The table by kind, under `title`, and what limits it.
    #[must_use]
    pub fn kinds_text(&self, title: &str, width: Width) -> String {
        let mut kinds = Table::new(self.titles(title));
        for row in &self.kinds {
            kinds.row(self.cells(row.place.title().to_owned(), row));
        }
        kinds.row(self.cells(self.total.place.clone(), &self.total));
        let note = self.source.limit().map(|limit| format!("note: {limit}\n")).unwrap_or_default();
        format!("{}{note}", kinds.render(width))
    }

    fn files_text(&self, width: Width) -> String {
        let mut files = Table::new(self.titles("the whole process, by file"));
        let (shown, rest) = self.files.split_at(self.files.len().min(MAX_FILES));
        for row in shown {
            files.row(self.cells(row.place.clone(), row));
        }
        if !rest.is_empty() {
            let sum = PlaceFaults {
                place: (),
                old: sum(rest.iter().map(|file| file.old)),
                new: self.total.new.map(|_| sum(rest.iter().filter_map(|file| file.new))),
            };
            files.row(self.cells(counted(rest.len() as u64, "other file"), &sum));
        }
        files.render(width)
    }

    fn has_majors(&self) -> bool {
        self.total.old.major.is_some()
    }

    fn titles(&self, first: &str) -> Vec<String> {
        let what = self.source.unit();
        let columns: &[&str] = if self.has_majors() { &["major", what] } else { &[what] };
        let sides: &[&str] = if self.total.new.is_some() { &[", old", ", new"] } else { &[""] };
        let titles =
            columns.iter().flat_map(|column| sides.iter().map(move |side| format!("{column}{side}")));
        std::iter::once(first.to_owned()).chain(titles).collect()
    }

    fn cells<P>(&self, name: String, row: &PlaceFaults<P>) -> Vec<String> {
        let sides = || std::iter::once(row.old).chain(row.new);
        let majors = sides().filter(|_| self.has_majors()).map(|counts| counts.major.unwrap_or_default());
        let figures = majors.chain(sides().map(|counts| counts.all));
        std::iter::once(name).chain(figures.map(|figure| format!("{figure:.0}"))).collect()
    }
}

fn sum(counts: impl Iterator<Item = FaultCounts>) -> FaultCounts {
    counts.fold(FaultCounts::default(), |sum, one| FaultCounts {
        major: one.major.map(|major| sum.major.unwrap_or_default() + major).or(sum.major),
        all: sum.all + one.all,
    })
}
