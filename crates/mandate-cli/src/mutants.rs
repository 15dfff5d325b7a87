//! The bugs that `mandate sim` can put back.

/// The simulator's mutants, by name.
#[derive(Clone, Copy, Debug, clap::ValueEnum)]
pub(crate) enum MutantName {
    /// nfd-l: labels restart at zero after a crash.
    LabelsRestart,
    /// nfd-l: zero time is written at every start.
    WritesEveryStart,
    /// nfd-l: a restarted member unseats the leader.
    PushyNewcomer,
    /// nfd-l: uptimes are compared as printed in the paper.
    PrintedSeniority,
    /// nfd-l: every suspicion comes one interval late.
    SlowDetector,
    /// installation: promises are not on disk after a crash.
    PromiseNotDurable,
    /// installation: a restarted member promises at once.
    LeaseNotWaitedOut,
    /// installation: leadership is a cached flag, not a deadline compared at the call.
    CachedCheck,
    /// installation: a leader counts its deadline from the answer, not from when it asked.
    DeadlineFromReply,
    /// installation: a member that has lost its disk votes at once.
    VoteWithoutDisk,
    /// installation: leaders allow for no drift of clocks.
    NoAllowance,
    /// installation: votes count whatever list of members, or guarantee, their sender has.
    ConfigIgnored,
    /// installation: a restarted leader does not wait for what acts on its former mandate.
    OwnPromiseForgotten,
    /// installation: another incarnation of a leader passes for the one that was promised.
    IncarnationIgnored,
    /// installation: after the loss of its disk a member waits for the lease of the highest term, not for the longest.
    LeaseOfHighest,
    /// installation: a leader that hands over frees the others before its own mandate has ended.
    FreedBeforeEnded,
    /// installation: what is to be written is answered before it is on disk.
    AnsweredBeforeWritten,
    /// installation: a new member votes before all of its list have answered it.
    NewVotesAtOnce,
    /// pole: also members that do not hear a quorum are candidates, as in the paper.
    IsolatedCandidates,
    /// pole: a claim is given up after a fixed time that counts from before it was written down.
    ImpatientClaims,
    /// pole: nobody minds a member whose disk was put back to an older state.
    OlderDiskIgnored,
    /// pole: a leader that falls silent is not suspected.
    SilenceIgnored,
    /// pole: a connection that breaks is taken for the death of whom it led to.
    HintIsProof,
    /// pole: probes wait by the round trip to whoever is nearest.
    NearestRoundTrip,
    /// registers: a leader counts its lease from the answer, not from before it asked.
    LeaseFromAnswer,
    /// registers: a version is watched from when the read was sent, not from its answer.
    WatchFromSending,
    /// registers: a takeover does not check the beat that it watched.
    TakeoverIgnoresBeat,
    /// registers: a renewal does not check the beat that it replaces.
    RenewalIgnoresBeat,
    /// registers: nobody allows for drift of clocks.
    NoDriftAllowance,
    /// registers: a leader that publishes a shorter lease goes on counting on the longer one.
    LoweredAtOnce,
    /// registers: a leader is suspected after so many rounds, not after a time.
    SuspicionByRounds,
    /// registers: a takeover does not raise the term.
    TermNotRaised,
    /// registers: a write whose outcome is unknown is taken for one that succeeded.
    UnknownIsSuccess,
    /// registers-losses: a vacant row is taken at once, also where it was lost with a lease that runs.
    LostLeaseForgotten,
    /// registers-losses: a control row that went back, or was made again, is told to nobody.
    LossesUntold,
    /// registers: a watcher goes by its own guarantee, not by the leader's.
    OwnGuarantee,
    /// registers: the algorithm as printed in the paper.
    PrintedRegisters,
    /// neli: the threshold counts from the answer, not from before the renewal was sent.
    FromAnswer,
    /// neli: whoever receives records leads, as printed in the paper.
    RecordsProve,
    /// neli: a renewal without an answer is taken for one that was accepted.
    UnknownIsAccepted,
    /// neli: a claim is led under before it is confirmed.
    ClaimUnconfirmed,
    /// neli: a renewal counts for a partition that was given back since it was sent.
    RenewsWhatIsGone,
    /// neli-layouts: members do not mind another layout.
    IgnoresLayout,
    /// neli: a revoked partition is released at once, and led until the threshold is over.
    ReleasedWhileLed,
    /// neli: leadership is a flag that is cleared when the process gets round to it.
    CachedFlag,
    /// neli: nobody allows for drift of clocks.
    NoDriftOnLedger,
    /// neli: nobody waits for whoever had a partition before and did not say that it has ended.
    NoGrace,
    /// neli: a leader says that its term is over while it leads.
    OverWhileLed,
    /// neli: a term that is over is believed to be the last that there was.
    OldMarkCounts,
    /// neli: who had a partition before is thought to count on it for as long as oneself would.
    OwnThreshold,
    /// neli: the generation of the group is the term.
    GenerationIsTerm,
    /// neli: renewals share a connection with joins, and wait behind them.
    ParkedRenewals,
    /// neli: one partition that is dry makes a member give up all.
    OneDryAllLeft,
    /// neli: a member whose renewal is accepted after a silence of a session is believed to have been one all the time.
    SilentReturn,
    /// neli-overlap: a record counts from when it is read, however long it waited.
    BacklogCounts,
    /// neli-overlap: leadership ends with the assignment.
    EndsWithAssignment,
}
