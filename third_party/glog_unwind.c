// The four functions of libunwind that glog's static library calls to take a stack trace, on top of
// the unwinder of GCC's own runtime.
//
// Debian builds libunwind.a without -fPIC, so neither a position-independent executable nor a
// shared library can hold it, and its own _Unwind_* functions would take the place of those that
// throw our exceptions. glog walks a trace like this: getcontext, init_local, then for each frame
// get_reg(IP) and step. Here init_local takes the whole trace at once, and step moves along it.

#include <stdint.h>
#include <unwind.h>

enum { kMaxFrames = 100 };

// Overlays libunwind's unw_cursor_t, which has 127 words (checked below).
typedef struct {
  uintptr_t count;
  uintptr_t at;
  uintptr_t frames[kMaxFrames];
} Cursor;

_Static_assert(sizeof(Cursor) <= 127 * sizeof(uintptr_t), "must fit into a unw_cursor_t");

static _Unwind_Reason_Code TakeFrame(struct _Unwind_Context* context, void* data) {
  Cursor* cursor = data;
  const uintptr_t ip = _Unwind_GetIP(context);
  if (ip == 0 || cursor->count == kMaxFrames) return _URC_END_OF_STACK;
  cursor->frames[cursor->count++] = ip;
  return _URC_NO_REASON;
}

int _Ux86_64_getcontext(void* context) {
  (void)context;
  return 0;
}

int _ULx86_64_init_local(Cursor* cursor, void* context) {
  (void)context;
  cursor->count = 0;
  cursor->at = 1;  // The frame of this function is not the caller's.
  _Unwind_Backtrace(TakeFrame, cursor);
  return 0;
}

int _ULx86_64_get_reg(Cursor* cursor, int reg, uintptr_t* value) {
  (void)reg;  // Always the instruction pointer.
  if (cursor->at >= cursor->count) return -1;
  *value = cursor->frames[cursor->at];
  return 0;
}

int _ULx86_64_step(Cursor* cursor) { return ++cursor->at < cursor->count; }
