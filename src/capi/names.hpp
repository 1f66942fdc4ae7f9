#pragma once
// Names of C++ that the definitions of C functions use, which lie outside of any namespace. For
// files of this folder alone.

#include "capi/error.hpp"
#include "capi/handles.hpp"
#include "larklane/completion.hpp"
#include "larklane/context.hpp"
#include "larklane/message.hpp"

using larklane::Completion;
using larklane::CompletionQueue;
using larklane::Context;
using larklane::Counter;
using larklane::Errc;
using larklane::Handler;
using larklane::Match;
using larklane::MatchSpace;
using larklane::Post;
using larklane::PostOptions;
using larklane::Region;
using larklane::RemoteCompletion;
using larklane::RemoteRegion;
using larklane::Result;
using larklane::Status;
using larklane::Synchronizer;
using larklane::Vci;
using larklane::VciOptions;
using larklane::capi::answer;
using larklane::capi::completion_of;
using larklane::capi::fail;
using larklane::capi::guarded;
using larklane::capi::HandlerCall;
