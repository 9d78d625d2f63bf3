//! The rules of docs/protocol.md that the conforming plugin may break.

use clap::ValueEnum;

/// The rule that the plugin breaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum BrokenRule {
    /// It keeps all of them.
    Nothing,
    /// Its version isn't semver.
    OddVersion,
    /// Calls with any digest are answered.
    AnyDigest,
    /// The latest configuration replaces the one before.
    OneConfiguration,
    /// A second Initialize with the same digest is an error.
    InitializeOnce,
    /// Release drops a configuration that another gateway still uses.
    ReleaseForAll,
    /// Shutdown drops all configurations.
    ShutdownForAll,
    /// The plugin ends after Shutdown.
    EndsOnShutdown,
    /// After a cancelled call, the next one is an internal error.
    PoisonedByCancel,
    /// After a call whose time ran out, the next one is an internal error.
    PoisonedByDeadline,
    /// A reply names the tool, or repeats the message, of the latest call.
    SharedState,
    /// A reply has no verdict.
    NoVerdict,
    /// Calls with a known digest get no reply.
    NoReply,
    /// A point that isn't offered is answered.
    SurplusPoint,
    /// A hook that isn't offered is answered.
    SurplusHook,
    /// A contribution has a kind that its hook doesn't take.
    ForeignKind,
    /// The tools have names that no glob in the manifest covers.
    UncoveredTool,
    /// A second Initialize is answered with one tool less.
    ChangingTools,
    /// A tool that the plugin doesn't provide is run.
    SurplusTool,
    /// A call that is to run a tool is answered with continue.
    ToolNotRun,
    /// The result of a tool isn't JSON.
    OddResult,
    /// Each Describe has another version.
    ChangingManifest,
    /// Arguments that are `null` are an internal error.
    NullFails,
    /// Arguments are sent back with their numbers as doubles.
    RoundedNumbers,
    /// The receive limit is gRPC's default.
    SmallReceiveLimit,
    /// The health service says NOT_SERVING.
    NotServing,
    /// Describe with a field that the contract doesn't have is an error.
    StrictDescribe,
    /// Calls with a field that the contract doesn't have are an error.
    StrictCalls,
    /// Arguments of more than 32 levels are an internal error.
    ShallowJson,
    /// Arguments with a NUL are an internal error.
    NulFails,
    /// A new process refuses to start where the last one left its socket.
    StaleSocket,
    /// A new process knows the configurations of the last one.
    KeptInstances,
    /// Half an address in a window passes.
    HalfAddress,
    /// What it has consumed of a window is counted in bytes.
    CountedBytes,
    /// A part of the last window is kept back.
    RestOfLast,
}
