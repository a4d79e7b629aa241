package sandbox

// SecretFile is a secret that a tool finds in a file.
type SecretFile struct {
	// Name is the file's in /run/secrets, without a slash.
	Name string
	Data []byte
}
