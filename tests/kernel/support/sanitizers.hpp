#pragma once

/// Whether this is a build with -fsanitize=thread; gcc and clang say it differently.
#if defined(__SANITIZE_THREAD__)
#define NSBOX_THREAD_SANITIZER 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NSBOX_THREAD_SANITIZER 1
#endif
#endif
#ifndef NSBOX_THREAD_SANITIZER
#define NSBOX_THREAD_SANITIZER 0
#endif
