#pragma once

/// Whether this is a build with -fsanitize=thread, or =address; gcc and clang say it differently.
#if defined(__SANITIZE_THREAD__)
#define NSBOX_THREAD_SANITIZER 1
#endif
#if defined(__SANITIZE_ADDRESS__)
#define NSBOX_ADDRESS_SANITIZER 1
#endif
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define NSBOX_THREAD_SANITIZER 1
#endif
#if __has_feature(address_sanitizer)
#define NSBOX_ADDRESS_SANITIZER 1
#endif
#endif
#ifndef NSBOX_THREAD_SANITIZER
#define NSBOX_THREAD_SANITIZER 0
#endif
#ifndef NSBOX_ADDRESS_SANITIZER
#define NSBOX_ADDRESS_SANITIZER 0
#endif
