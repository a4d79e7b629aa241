package worker

import (
	"context"
	"fmt"
	"io"

	"github.com/toolfleet/toolfleet/blob"
	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/sandbox"
)

// filesIn are the files of the call, as a sandbox takes them. They are looked at
// before a sandbox is taken, so that a call that has lost one starts nothing;
// their bytes go straight from the store to the tool's disk.
func (a *attempt) filesIn(ctx context.Context) ([]sandbox.File, error) {
	if len(a.job.Call.Files) == 0 {
		return nil, nil
	}
	ctx, cancel := context.WithTimeout(ctx, lookTimeout)
	defer cancel()
	var files []sandbox.File
	for _, f := range a.job.Call.Files {
		id, err := blob.Parse(f.Blob)
		if err != nil {
			return nil, err
		}
		if id.Tenant != a.ref.Tenant {
			return nil, fmt.Errorf("worker: file %q belongs to another tenant", f.Name)
		}
		info, err := a.Blobs.Stat(ctx, id)
		if err != nil {
			return nil, fmt.Errorf("worker: file %q: %w", f.Name, err)
		}
		if info.Digest != f.Digest || info.Size != f.Size {
			return nil, fmt.Errorf("worker: file %q is not the one that the call says", f.Name)
		}
		files = append(files, a.fileIn(id, f))
	}
	return files, nil
}

func (a *attempt) fileIn(id blob.ID, f call.File) sandbox.File {
	return sandbox.File{Name: f.Name, Size: f.Size, Open: func(ctx context.Context) (io.ReadCloser, error) {
		_, r, err := a.Blobs.Get(ctx, id, 0)
		return r, err
	}}
}
