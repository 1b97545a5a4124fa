//! Reads the chapter. The messages that it explains stand between backquotes in the first cells of its tables, and in
//! bold between backquotes in the items of its lists; `...` stands for anything.

/// A message as the chapter writes it.
#[derive(Debug)]
pub(crate) struct Pattern {
    text: String,
}

/// The text below this heading is about other programs.
const OTHERS: &str = "## What others say";

/// All messages of our own program that the chapter explains.
pub(crate) fn patterns(page: &str) -> Vec<Pattern> {
    let own = page.split(OTHERS).next().unwrap_or(page);
    let cells = own.lines().filter_map(|line| Some(line.strip_prefix("| ")?.split_once(" |")?.0));
    let in_cells = cells.flat_map(|cell| cell.split('`').skip(1).step_by(2)).map(Pattern::new);
    let items = items(own);
    let in_items = items.iter().flat_map(|item| bold(item)).map(Pattern::new);
    in_cells.chain(in_items).collect()
}

/// The items of the page's lists, each on one line.
fn items(page: &str) -> Vec<String> {
    let mut items: Vec<String> = Vec::new();
    let mut inside = false;
    for line in page.lines() {
        match (line.strip_prefix("- "), line.strip_prefix("  ")) {
            (Some(text), _) => items.push(text.to_owned()),
            (None, Some(more)) if inside => {
                let item = items.last_mut().expect("a line inside an item follows its first");
                *item += &format!(" {}", more.trim());
            }
            _ => {
                inside = false;
                continue;
            }
        }
        inside = true;
    }
    items
}

/// The texts in bold between backquotes.
fn bold(item: &str) -> impl Iterator<Item = &str> {
    item.split("**`").skip(1).filter_map(|rest| Some(rest.split_once("`**")?.0))
}

/// The rows outside tables, with their line numbers. A row follows another line of its table. A row behind any other
/// line must be the head of a table, which a line of `|---` follows. An empty line ends a table: rows behind it are
/// shown as plain text.
pub(crate) fn stray_rows(page: &str) -> Vec<(usize, &str)> {
    let lines: Vec<_> = page.lines().collect();
    let is_row = |at: &usize| lines[*at].starts_with("| ");
    let follows = |at: usize| at > 0 && lines[at - 1].starts_with('|');
    let is_head = |at: usize| lines.get(at + 1).is_some_and(|next| next.starts_with("|---"));
    let stray = (0..lines.len()).filter(is_row).filter(|at| !follows(*at) && !is_head(*at));
    stray.map(|at| (at + 1, lines[at])).collect()
}

impl Pattern {
    pub(crate) fn new(text: &str) -> Self {
        Self { text: text.to_owned() }
    }

    fn pieces(&self) -> impl Iterator<Item = &str> {
        self.text.split("...").map(str::trim).filter(|piece| !piece.is_empty())
    }

    /// Whether a message of the sources contains all parts of the pattern in their order.
    pub(crate) fn explains(&self, message: &str) -> bool {
        let mut rest = message;
        let found = self.pieces().all(|piece| match rest.split_once(piece) {
            Some((_, behind)) => {
                rest = behind;
                true
            }
            None => false,
        });
        found && self.pieces().next().is_some()
    }

    /// Whether it is the name of a metric, perhaps with labels, or the value of a label, that the page about metrics
    /// has.
    pub(crate) fn is_of_metrics(&self, page: &str) -> bool {
        let name = self.text.split('{').next().unwrap_or("");
        page.contains(&format!("`{name}`"))
    }
}
