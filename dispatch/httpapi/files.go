package httpapi

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/toolfleet/toolfleet/call"
	"github.com/toolfleet/toolfleet/dispatch"
)

// fileRequest is a file in the body of POST /v1/calls.
type fileRequest struct {
	Name     string `json:"name" doc:"The file's in /workspace/in: no slash, no control character, no dot at its beginning." example:"report.pdf"`
	MimeType string `json:"mimeType,omitempty" doc:"Told by the bytes when absent."`
	Data     string `json:"data,omitempty" doc:"The bytes, in base64."`
	URL      string `json:"url,omitempty" doc:"In place of data: the URL of a part of an earlier result, as this fleet gave it."`
}

// decodeFiles reads the files of a body as strictly as the body.
func decodeFiles(raw json.RawMessage) ([]fileRequest, error) {
	var list []json.RawMessage
	if raw[0] != '[' || json.Unmarshal(raw, &list) != nil {
		return nil, errors.New("files must be a list")
	}
	if len(list) > call.MaxFiles {
		return nil, fmt.Errorf("a call may bring %d files, and this one has %d", call.MaxFiles, len(list))
	}
	files := make([]fileRequest, len(list))
	var errs []error
	for i, raw := range list {
		if err := decodeFile(raw, &files[i]); err != nil {
			errs = append(errs, fmt.Errorf("files[%d]: %w", i, err))
		}
	}
	return files, errors.Join(errs...)
}

func decodeFile(raw json.RawMessage, f *fileRequest) error {
	if !bytes.HasPrefix(bytes.TrimSpace(raw), []byte("{")) {
		return errors.New("is not an object")
	}
	list, err := members(raw)
	if err != nil {
		return err
	}
	fields := map[string]*string{"name": &f.Name, "mimeType": &f.MimeType, "data": &f.Data, "url": &f.URL}
	for _, m := range list {
		field, known := fields[m.name]
		switch {
		case !known:
			return fmt.Errorf("%q is not a member of a file", clip(m.name))
		case m.value[0] != '"':
			return fmt.Errorf("%s must be a string", m.name)
		}
		if err := json.Unmarshal(m.value, field); err != nil {
			return fmt.Errorf("%s: %w", m.name, err)
		}
	}
	if has(list, "data") == has(list, "url") || has(list, "url") && f.URL == "" {
		return errors.New("needs data or url, and not both")
	}
	return nil
}

// uploads turns the files of a request into what the dispatcher takes.
func uploads(files []fileRequest, caller dispatch.Caller) ([]dispatch.Upload, error) {
	var out []dispatch.Upload
	for i, f := range files {
		u := dispatch.Upload{Name: f.Name, MimeType: f.MimeType}
		if f.URL != "" {
			id, ok := caller.Blob(f.URL)
			if !ok {
				return nil, fmt.Errorf("files[%d]: url is not that of a part which this fleet gave; other URLs are not fetched", i)
			}
			u.Blob = &id
		} else {
			data, err := base64.StdEncoding.DecodeString(f.Data)
			if err != nil {
				return nil, fmt.Errorf("files[%d]: data is not base64", i)
			}
			u.Data = data
		}
		out = append(out, u)
	}
	return out, nil
}
