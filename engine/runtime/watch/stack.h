// StackOf(): the call stack of a thread of this process, for a rank's flight record. Torch-free.
#pragma once

#include <cstddef>
#include <string>

#include "engine/runtime/watch/progress.h"

namespace strata {

/// Call it once before StackOf(): installs the handler of the signal that interrupts threads.
void PrepareStacks();

/// Returns the calls of the thread, the innermost first, one per line: "c10d::x() +0x12
/// (libtorch_cpu.so)". Returns "" if the thread does not answer within a fraction of a second,
/// because it is stopped or sleeps in the kernel (disk). Only functions that libraries export have
/// names. `script` (may be null) receives the position in the script that called the code which
/// runs there, as far as the thread itself knows it (NoteScript).
std::string StackOf(int thread, std::string* script = nullptr);

/// Returns the calls of the script's function that the engine is running on this thread (0: on any
/// thread), one per line; "" if none runs.
std::string ScriptStack(int thread);

/// Called in a signal handler on the thread: writes the position of the script that waits for the
/// thread's current work, and returns the number of bytes; 0 if there is none.
using NoteScript = size_t (*)(char* text, size_t size);
/// Sets what ScriptStack() and StackOf() call. The implementation is in lua/engine, on which this
/// package must not depend.
void SetScriptStack(std::string (*stack)(int thread), NoteScript note);

/// Writes the call stack of the rank's thread and the position of the script into the rank's flight
/// record.
void NoteStack(const Progress& progress);

}  // namespace strata
