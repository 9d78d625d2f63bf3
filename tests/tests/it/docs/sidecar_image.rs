//! Executes a page's Dockerfile in folders: a root for each stage, and commands whose paths are moved below
//! it. Packages aren't downloaded: it may use only those of examples/python-raw, which are installed.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::fs::symlink,
    path::{Path, PathBuf},
    process::Command,
};

use hookgate_tests::{gateway::binary, repository};

use crate::deploy::support::text;

/// An image: what to start from it.
pub(crate) struct Image {
    root: PathBuf,
    folder: String,
    pub(crate) entry_point: Vec<String>,
}

impl Image {
    /// The gateway's own image, which is tested elsewhere: its folder and its entry point.
    pub(crate) fn gateway(entry_point: Vec<String>, root: &Path) -> Self {
        Image::at(root.to_owned(), "/var/lib/hookgate", entry_point)
    }

    fn at(root: PathBuf, folder: &str, entry_point: Vec<String>) -> Self {
        fs::create_dir_all(root.join(folder.trim_start_matches('/'))).unwrap();
        Image { root, folder: folder.to_owned(), entry_point }
    }

    /// Executes a folder's `Dockerfile` below `work`, based on images that were built before.
    pub(crate) fn build(context: &Path, work: &Path, images: &BTreeMap<String, Image>) -> Self {
        let file = fs::read_to_string(context.join("Dockerfile")).unwrap().replace("\\\n", " ");
        let mut stages: Vec<(String, Image)> = Vec::new();
        for line in file.lines().filter(|line| !line.is_empty()) {
            let (word, rest) = line.split_once(' ').unwrap_or_else(|| panic!("{line}"));
            if word == "FROM" {
                let (image, name) = rest.split_once(" AS ").unwrap_or((rest, ""));
                let root = work.join(stages.len().to_string());
                stages.push((name.to_owned(), Image::from(image, root, images)));
                continue;
            }
            let Some(((_, stage), before)) = stages.split_last_mut() else { panic!("{line} before FROM") };
            match word {
                "WORKDIR" => *stage = Image::at(stage.root.clone(), rest, stage.entry_point.clone()),
                "RUN" => stage.run(rest),
                "COPY" => stage.copy(rest, context, before),
                "USER" => assert_eq!(rest, "65532:65532", "the chart runs it as that user"),
                "ENTRYPOINT" => stage.entry_point = serde_json::from_str(rest).expect("a list"),
                _ => panic!("{word} is not known here"),
            }
        }
        stages.pop().expect("it has a stage").1
    }

    fn from(image: &str, root: PathBuf, images: &BTreeMap<String, Image>) -> Self {
        if let Some(built) = images.get(image) {
            return Image::at(root, &built.folder, built.entry_point.clone());
        }
        let known = text("examples/python-raw/Dockerfile");
        assert!(
            known.lines().any(|line| line == format!("FROM {image}")),
            "{image}: neither built nor known"
        );
        Image::at(root, "/", Vec::new())
    }

    /// Where a path of the image is on this machine.
    fn path(&self, path: &str) -> PathBuf {
        self.root.join(Path::new(&self.folder).join(path).strip_prefix("/").expect("it is absolute"))
    }

    /// The words of a command, with paths moved to this machine.
    fn moved(&self, words: &str) -> String {
        let mut words = format!(" {words}");
        for before in [' ', '='] {
            words = words.replace(&format!("{before}/"), &format!("{before}{}/", self.root.display()));
        }
        words
    }

    fn run(&self, rest: &str) {
        if rest.contains("pip install") {
            let known = text("examples/python-raw/requirements.txt");
            for package in rest.split_whitespace().filter(|word| word.contains("==")) {
                assert!(known.lines().any(|line| line == package), "{package} isn't what was installed");
            }
            let (_, folder) = rest.split_once("-m venv ").expect("they go into a folder");
            let folder = folder.split_whitespace().next().unwrap();
            symlink(repository::root().join("examples/python-raw/.venv"), self.path(folder)).unwrap();
            return;
        }
        let words = serde_json::from_str::<Vec<String>>(rest).map(|words| words.join(" "));
        let script = self.moved(words.as_deref().unwrap_or(rest));
        let path = format!("{}:/usr/bin:/bin", binary().parent().unwrap().display());
        let mut command = Command::new("bash");
        let done =
            command.args(["-c", &script]).current_dir(self.path("")).env("PATH", path).output().unwrap();
        assert!(done.status.success(), "RUN {rest}: {}", String::from_utf8_lossy(&done.stderr));
    }

    fn copy(&self, rest: &str, context: &Path, before: &[(String, Image)]) {
        let (origin, rest) = match rest.strip_prefix("--from=").and_then(|rest| rest.split_once(' ')) {
            None => (None, rest),
            Some((name, rest)) => {
                let stage = before.iter().find(|(stage, _)| stage == name);
                (Some(&stage.unwrap_or_else(|| panic!("no stage {name}")).1), rest)
            }
        };
        let (source, target) = rest.split_once(' ').expect("what, and where to");
        let from = origin.map_or_else(|| context.join(source), |stage| stage.path(source));
        let to = self.path(target);
        let mut command = Command::new("cp");
        // A folder's content is copied into the target, a file into an existing folder.
        command.args(if from.is_dir() { ["-rT", "--"] } else { ["-p", "--"] }).args([from, to]);
        assert!(command.status().unwrap().success(), "COPY {rest}");
    }

    /// Its entry point, without arguments.
    pub(crate) fn command(&self) -> tokio::process::Command {
        let mut command = tokio::process::Command::new(self.path(&self.entry_point[0]));
        command.args(&self.entry_point[1..]).current_dir(self.path(""));
        command
    }
}
