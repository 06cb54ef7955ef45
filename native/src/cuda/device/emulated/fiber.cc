#include "cuda/device/emulated/fiber.h"

#include <sys/mman.h>

#include <exception>
#include <new>

#include "cuda/device/emulated/barrier.h"
#include "cuda/device/emulated/sanitizer.h"

namespace longhaul::cuda::emulated {
namespace {

// Sanitizers make frames larger.
constexpr size_t stack_bytes = address_check || race_check ? 256 * 1024 : 64 * 1024;

char* stacks = nullptr;
size_t stack_count = 0;

void allocate_stacks(size_t count) {
  if (stack_count >= count) return;
  if (stacks) munmap(stacks, stack_count * stack_bytes);
  stack_count = 0;
  void* memory = mmap(nullptr, count * stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (memory == MAP_FAILED) throw std::bad_alloc();
  stacks = static_cast<char*>(memory);
  stack_count = count;
  // A guard page below each stack: a kernel with too large a frame ends by a signal and overwrites nothing.
  for (size_t i = 0; i < count; ++i) mprotect(stacks + i * stack_bytes, 4096, PROT_NONE);
#if defined(LONGHAUL_RACE_CHECK)
  AnnotateBenignRaceSized(__FILE__, __LINE__, stacks, count * stack_bytes, "a stack that a thread of a later block uses too");
#endif
}

// Stores this fiber's stack pointer in *save and continues with the fiber that stored `load`. Waiting fibers are always at label 1 of this function,
// which is never inlined, so only rbp and rbx must be saved; the compiler saves the other registers. call and ret are avoided, because they would
// spoil the processor's prediction of returns (which doubles the time of a switch). The 128 bytes below the stack pointer belong to the function.
__attribute__((noinline, noipa, no_sanitize("address"))) void switch_stacks(void** save, void* load) {
  asm volatile(
      "leaq -128(%%rsp), %%rsp\n"
      "pushq %%rbp\n"
      "pushq %%rbx\n"
      "leaq 1f(%%rip), %%rax\n"
      "pushq %%rax\n"
      "movq %%rsp, (%0)\n"
      "movq %1, %%rsp\n"
      "popq %%rax\n"
      "jmp *%%rax\n"
      "1: popq %%rbx\n"
      "popq %%rbp\n"
      "leaq 128(%%rsp), %%rsp\n"
      : "+D"(save), "+S"(load)
      :
      : "rax", "rcx", "rdx", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15", "memory", "cc");
}

void run_thread() {
#if defined(LONGHAUL_ADDRESS_CHECK)
  const void* bottom = nullptr;
  size_t size = 0;
  __sanitizer_finish_switch_fiber(nullptr, &bottom, &size);
  if (!block.launcher.stack) {
    block.launcher.stack = static_cast<char*>(const_cast<void*>(bottom));
    block.launcher.stack_bytes = size;
  }
#endif
  try {
    block.body(block.body_argument);
  } catch (const std::exception& error) {
    block.error = error.what();
  }
  if (block.error.empty()) exit_thread();
  current->state = State::exited;
  switch_to(&block.launcher);
}

}  // namespace

void start_fibers() {
  allocate_stacks(size_t(block.threads));
  allow_access(stacks, stack_count * stack_bytes);  // threads that a failure left behind had forbidden parts
  for (int i = 0; i < block.threads; ++i) {
    Fiber& fiber = block.fibers[i];
    fiber.stack = stacks + size_t(i) * stack_bytes;
    fiber.stack_bytes = stack_bytes;
    // The tops are 128 bytes apart; else the same variable of all 32 lanes would be in one cache set.
    void** top = reinterpret_cast<void**>(fiber.stack + stack_bytes - 128 - size_t(i % warp_lanes) * 128);
    top[-1] = nullptr;  // run_thread has no caller
    top[-2] = reinterpret_cast<void*>(&run_thread);
    fiber.stack_pointer = top - 2;
#if defined(LONGHAUL_RACE_CHECK)
    fiber.sanitizer = __tsan_create_fiber(0);
#endif
  }
  block.launcher.stack = nullptr;  // another OS thread may have launched before
#if defined(LONGHAUL_RACE_CHECK)
  block.launcher.sanitizer = __tsan_get_current_fiber();
#endif
}

void end_fibers() {
#if defined(LONGHAUL_RACE_CHECK)
  const bool failed = block.exited != block.threads;
  for (int i = 0; i < block.threads; ++i) {
    void* fiber = block.fibers[i].sanitizer;
    if (failed) {
      // Threads that still wait have not reported their accesses, and never will.
      __tsan_switch_to_fiber(fiber, __tsan_switch_to_fiber_no_sync);
      release(&block.exit_object);
      __tsan_switch_to_fiber(block.launcher.sanitizer, __tsan_switch_to_fiber_no_sync);
    }
    __tsan_destroy_fiber(fiber);
  }
  if (failed) acquire(&block.exit_object);
#endif
}

void switch_to(Fiber* to) {
  Fiber* from = current;
  if (to == from) return;
  current = to;
#if defined(LONGHAUL_ADDRESS_CHECK)
  __sanitizer_start_switch_fiber(from->state == State::exited ? nullptr : &from->sanitizer, to->stack, to->stack_bytes);
#elif defined(LONGHAUL_RACE_CHECK)
  __tsan_switch_to_fiber(to->sanitizer, __tsan_switch_to_fiber_no_sync);
#endif
  switch_stacks(&from->stack_pointer, to->stack_pointer);
#if defined(LONGHAUL_ADDRESS_CHECK)
  __sanitizer_finish_switch_fiber(from->sanitizer, nullptr, nullptr);
#endif
}

}  // namespace longhaul::cuda::emulated
