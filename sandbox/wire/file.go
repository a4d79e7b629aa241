package wire

// MaxFileData bounds the bytes of a file in one frame.
const MaxFileData = MaxChunk - 1

// MaxFileName bounds the name of a file, in bytes.
const MaxFileName = 1024

// FileOp is the first byte of a file frame's payload. It says what the rest is.
type FileOp byte

// The operations on files.
const (
	FileBegin FileOp = 'b' // JSON File: a file begins, and Size bytes of it follow
	FileData  FileOp = 'd' // the next bytes of the file that began last
	FileLeft  FileOp = 'l' // agent: JSON Left; also when the last file is given up half-way
	FileEnd   FileOp = 'e' // host: no more files come, and the tool may start
)

// File begins a file.
type File struct {
	// Name has no separator on its way in. On its way out it is the path below
	// the tool's outgoing directory.
	Name string `json:"name"`
	Size int64  `json:"size"`
}

// Left tells of something in the outgoing directory that is not sent.
type Left struct {
	// Name is empty for the directory itself.
	Name string `json:"name"`
	// Reason is a phrase for people, such as "is a symbolic link".
	Reason string `json:"reason"`
	// More counts what else is left out and has no frame of its own; then the
	// other fields are empty.
	More int `json:"more,omitempty"`
}

// Out bounds what an agent sends of a tool's outgoing directory.
type Out struct {
	Files int `json:"files"`
	// Bytes is of all files together.
	Bytes int64 `json:"bytes"`
}

// MaxLeft bounds the left-out files that have a frame of their own.
const MaxLeft = 20
