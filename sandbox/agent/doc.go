// Package agent is the first process of every sandbox. It brings the sandbox
// up, starts the one tool of the one call, carries its streams, reaps what it
// leaves behind and tells how it ended, in the frames of package
// sandbox/wire on its own stdin and stdout.
//
// The agent is trusted and the tool is not, though they live side by side. What
// keeps them apart:
//
//   - The tool has another user, no capability, no_new_privs and a seccomp
//     filter, all of it in force before its exec; see launch.go.
//   - As process 1 of its pid namespace the agent cannot be killed from inside.
//   - The agent parses nothing that the tool writes. It cuts bytes into frames
//     and lines; their meaning is the host's business.
//   - Everything it holds has a bound, so the tool cannot make it grow.
//   - It needs no new thread and no new file once the tool runs, so a tool that
//     eats all processes or files starves itself and not the agent.
//
// The agent lives as long as its stdin: when the host is gone, so is the agent,
// and with process 1 the kernel ends everything in the sandbox.
//
// It is the standard library and x/sys only, one static binary of less than
// four megabytes, mounted read-only into every sandbox.
package agent
