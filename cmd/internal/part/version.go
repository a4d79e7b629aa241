package part

import "runtime/debug"

// stamped is set by a build that names its version itself, with
// -ldflags=-X=…/part.stamped=NAME.
var stamped string

// Version is that of the build, if it was given one, or of the module, or the
// revision it was built from.
func Version() string {
	if stamped != "" {
		return stamped
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	v := info.Main.Version
	for _, s := range info.Settings {
		if s.Key == "vcs.revision" && (v == "" || v == "(devel)") {
			v = "devel-" + s.Value[:min(len(s.Value), 12)]
		}
	}
	return v
}
