// Where a thread of this process is, for a rank's flight record. Torch-free.
#pragma once

#include <cstddef>
#include <string>

#include "engine/runtime/watch/progress.h"

namespace strata {

/// To be called once, before StackOf() may be: takes the signal by which threads are asked.
void PrepareStacks();

/// The calls that the thread is in, the innermost first, a line each: "c10d::x() +0x12
/// (libtorch_cpu.so)". "" when it does not answer within a moment, as a thread that sleeps in the
/// kernel's disk or is stopped. Only what libraries export has names. `script` (may be null) gets
/// what the thread itself knows of the script that called what runs there: NoteScript.
std::string StackOf(int thread, std::string* script = nullptr);

/// The calls that a function of the script is in which the engine has called on this thread (0: on
/// any), a line each; "" where none runs.
std::string ScriptStack(int thread);

/// In a handler of a signal on the thread: writes where the script is that waits for what the
/// thread does, and gives how many bytes; 0 where none does.
using NoteScript = size_t (*)(char* text, size_t size);
/// What ScriptStack() asks: scripts are known in a room above (lua/engine).
void SetScriptStack(std::string (*stack)(int thread), NoteScript note);

/// Writes the stack of the rank's thread into its flight record, and where the script is.
void NoteStack(const Progress& progress);

}  // namespace strata
