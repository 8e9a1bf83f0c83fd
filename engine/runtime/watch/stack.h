// Where a thread of this process is, for a rank's flight record. Torch-free.
#pragma once

#include <string>

#include "engine/runtime/watch/progress.h"

namespace strata {

/// To be called once, before StackOf() may be: takes the signal by which threads are asked.
void PrepareStacks();

/// The calls that the thread is in, the innermost first, a line each: "c10d::x() +0x12
/// (libtorch_cpu.so)". "" when it does not answer within a moment, as a thread that sleeps in the
/// kernel's disk or is stopped. Only what libraries export has names.
std::string StackOf(int thread);

/// Writes the stack of the rank's thread into its flight record.
void NoteStack(const Progress& progress);

}  // namespace strata
