//! The scripts of a LibreFang plugin: which hook or point of the gateway calls each, and how it is executed.

use std::path::PathBuf;

use hookgate_proto::Point;

use crate::executable;

/// What a script is for, by its key in `[hooks]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ScriptKind {
    Bootstrap,
    Ingest,
    Assemble,
    Compact,
    AfterTurn,
    PrepareSubagent,
    MergeSubagent,
    OnEvent,
    TransformToolResult,
}

impl ScriptKind {
    pub(crate) const ALL: [ScriptKind; 9] = [
        ScriptKind::Bootstrap,
        ScriptKind::Ingest,
        ScriptKind::Assemble,
        ScriptKind::Compact,
        ScriptKind::AfterTurn,
        ScriptKind::PrepareSubagent,
        ScriptKind::MergeSubagent,
        ScriptKind::OnEvent,
        ScriptKind::TransformToolResult,
    ];

    /// Its key in `[hooks]`, which is also the `type` of its calls.
    pub(crate) const fn key(self) -> &'static str {
        match self {
            ScriptKind::Bootstrap => "bootstrap",
            ScriptKind::Ingest => "ingest",
            ScriptKind::Assemble => "assemble",
            ScriptKind::Compact => "compact",
            ScriptKind::AfterTurn => "after_turn",
            ScriptKind::PrepareSubagent => "prepare_subagent",
            ScriptKind::MergeSubagent => "merge_subagent",
            ScriptKind::OnEvent => "on_event",
            ScriptKind::TransformToolResult => "transform_tool_result",
        }
    }

    /// The hook of the gateway, or the name of the point.
    pub(crate) const fn site(self) -> &'static str {
        match self {
            ScriptKind::Bootstrap => "agent_start",
            ScriptKind::Ingest => "recall",
            ScriptKind::Assemble => "assemble",
            ScriptKind::Compact => "before_compact",
            ScriptKind::AfterTurn => "turn_end",
            ScriptKind::PrepareSubagent => "subagent_start",
            ScriptKind::MergeSubagent => "subagent_end",
            ScriptKind::OnEvent => "event",
            ScriptKind::TransformToolResult => Point::AfterToolResult.as_str(),
        }
    }

    /// The kind whose script answers at a hook or a point.
    pub(crate) fn at(site: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.site() == site)
    }
}

/// One script.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) kind: ScriptKind,
    /// The file, without links.
    pub(crate) path: PathBuf,
    pub(crate) command: Vec<String>,
}

impl Script {
    pub(crate) fn new(kind: ScriptKind, path: PathBuf, launcher: &Launcher) -> Result<Self, String> {
        let file = path.display().to_string();
        let command = match launcher.command.is_empty() {
            true => vec![file],
            false => launcher.command.iter().cloned().chain([file]).collect(),
        };
        if let [program] = &*command {
            executable::check(program, "")?;
        }
        Ok(Script { kind, path, command })
    }
}

/// What executes the scripts of a plugin.
#[derive(Debug, Default)]
pub(crate) struct Launcher {
    /// The name of the runtime, as scripts see it in `LIBREFANG_RUNTIME`.
    pub(crate) runtime: String,
    /// The interpreter and its arguments before the script. Empty if the script is a program.
    command: Vec<String>,
    /// Whether the interpreter was found in the folders of `PATH`, so that every plugin may read it.
    is_from_path: bool,
}

/// A runtime: its names, the interpreters to look for, and their arguments.
struct Runtime {
    names: &'static [&'static str],
    interpreters: &'static [&'static str],
    arguments: &'static [&'static str],
}

const fn runtime(
    names: &'static [&'static str],
    interpreters: &'static [&'static str],
    arguments: &'static [&'static str],
) -> Runtime {
    Runtime { names, interpreters, arguments }
}

/// All but `native`, `wasm` and paths of interpreters. The first is the default.
const RUNTIMES: [Runtime; 10] = [
    runtime(&["python", "python3", "py"], &["python3", "python"], &[]),
    runtime(&["node", "nodejs", "js"], &["node"], &[]),
    runtime(&["bash", "sh", "shell"], &["bash"], &[]),
    runtime(&["deno", "ts", "typescript"], &["deno"], &["run", "--allow-read", "--allow-env"]),
    runtime(&["bun"], &["bun"], &["run"]),
    runtime(&["go", "golang"], &["go"], &["run"]),
    runtime(&["ruby", "rb"], &["ruby"], &[]),
    runtime(&["php"], &["php"], &[]),
    runtime(&["lua"], &["lua"], &[]),
    runtime(&["v", "vlang"], &["v"], &["-no-retry-compilation", "run"]),
];

impl Launcher {
    /// The launcher for a manifest's `runtime`, with an interpreter from the folders of `path`. What is worth a warning
    /// goes to `warnings`.
    ///
    /// # Errors
    /// If there is no such interpreter.
    pub(crate) fn find(tag: Option<&str>, path: &str, warnings: &mut Vec<String>) -> Result<Self, String> {
        let tag = tag.unwrap_or_default().trim();
        let name = tag.to_ascii_lowercase();
        if tag.starts_with('/') {
            executable::check(tag, path)?;
            let command = vec![tag.to_owned()];
            return Ok(Launcher { runtime: tag.to_owned(), command, is_from_path: false });
        }
        if ["native", "binary", "exec"].contains(&&*name) {
            return Ok(Launcher { runtime: "native".into(), ..Launcher::default() });
        }
        if ["wasm", "webassembly"].contains(&&*name) {
            return Err("`wasm` is not served: LibreFang itself doesn't execute it yet".into());
        }
        let default = &RUNTIMES[0];
        let known = RUNTIMES.iter().find(|runtime| runtime.names.contains(&&*name));
        if known.is_none() && !tag.is_empty() {
            warnings.push(format!("the runtime `{tag}` is not known, so it is python"));
        }
        let runtime = known.unwrap_or(default);
        let found = runtime.interpreters.iter().find_map(|name| executable::find(name, path));
        let interpreter = found.ok_or_else(|| {
            let names = runtime.interpreters.join("` or `");
            format!("there is no program `{names}` in {path}: install it, or set PATH in `env`")
        })?;
        let arguments = runtime.arguments.iter().map(ToString::to_string);
        let command = std::iter::once(interpreter.display().to_string()).chain(arguments).collect();
        Ok(Launcher { runtime: runtime.names[0].into(), command, is_from_path: true })
    }

    /// The interpreter, if programs may read it.
    pub(crate) fn readable(&self) -> Option<PathBuf> {
        self.command.first().filter(|_| self.is_from_path).map(PathBuf::from)
    }
}
