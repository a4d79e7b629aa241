package call

// Files tells of what a tool left in /workspace/out.
type Files struct {
	// Count and Bytes are of the files that are parts of the result.
	Count int   `json:"count"`
	Bytes int64 `json:"bytes"`
	// LeftOut names what is not, at most 20, and LeftOutMore is how many others.
	LeftOut     []LeftOut `json:"leftOut,omitempty"`
	LeftOutMore int       `json:"leftOutMore,omitempty"`
}

// LeftOut names a file that is not part of the result, and says why.
type LeftOut struct {
	// Name is the path below /workspace/out; "." is the directory itself.
	Name string `json:"name"`
	// Reason is a phrase that follows the name, such as "is a symbolic link".
	Reason string `json:"reason"`
}

// MetaLeftOut marks the text part, in Extra, that tells a model of files that
// were left out.
const MetaLeftOut = "toolfleet.leftOut"
