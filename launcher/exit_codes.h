// The exit codes of all commands; the manual page, the reference and the tests use this table.
#pragma once

namespace strata::launcher {

struct ExitCode {
  const char* code;   ///< "2"; "128 + N" for signals
  const char* means;  ///< one line, without Markdown
};

inline constexpr ExitCode kExitCodes[] = {
    {"0", "it went well"},
    {"1",
     "the world failed: a file, a rank, a machine, a hang, a loss that is no number, a comparison; "
     "doctor and inspect: something is missing"},
    {"2", "the command line, the script or the data is wrong, from the start or at a later step"},
    {"129", "SIGHUP: the terminal was closed (128 + SIGHUP)"},
    {"130", "Ctrl-C (128 + SIGINT)"},
    {"141", "what reads the output has ended (128 + SIGPIPE)"},
    {"143",
     "SIGTERM, after a save of the step that ran where the job has save.dir (128 + SIGTERM)"},
    {"163",
     "a rank, its memory or a link gave wrong bits (check); the message names its host, and the "
     "step was not taken"},
    {"128 + N",
     "a rank was ended by signal N: 134 is SIGABRT, 137 SIGKILL, as when the machine runs out of "
     "memory, 139 SIGSEGV"},
};

}  // namespace strata::launcher
