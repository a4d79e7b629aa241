package wire

// DirSecrets is where a tool finds the secrets that come as files: a tmpfs of
// its own, which is there for calls that have such files.
const DirSecrets = "/run/secrets"

// MaxSecrets bounds the secret frames before a start.
const MaxSecrets = 16

// Secret is one file in [DirSecrets]: the payload of a secret frame. The frame
// comes before the start of its stream; the tool's user alone may read the file.
type Secret struct {
	// Name is a file name, without a slash.
	Name string `json:"name"`
	Data []byte `json:"data"`
}
