package blob

import (
	"context"
	"encoding/json"

	"github.com/nats-io/nats.go/jetstream"
)

// askLeader reads the last message of a subject from the stream's leader. The
// client library asks any replica, once a stream allows it.
func (s *Store) askLeader(ctx context.Context, subject string) ([]byte, error) {
	question, err := json.Marshal(map[string]string{"last_by_subj": subject})
	if err != nil {
		return nil, err
	}
	msg, err := s.js.Conn().RequestWithContext(ctx, s.api+"STREAM.MSG.GET."+objects, question)
	if err != nil {
		return nil, err
	}
	var reply struct {
		Error   *jetstream.APIError `json:"error"`
		Message struct {
			Data []byte `json:"data"`
		} `json:"message"`
	}
	if err := json.Unmarshal(msg.Data, &reply); err != nil {
		return nil, err
	}
	switch {
	case reply.Error == nil:
		return reply.Message.Data, nil
	case reply.Error.ErrorCode == jetstream.JSErrCodeMessageNotFound:
		return nil, ErrNotFound
	}
	return nil, reply.Error
}

// apiPrefix is where the server's JetStream API is.
func apiPrefix(js jetstream.JetStream) string {
	switch o := js.Options(); {
	case o.Domain != "":
		return "$JS." + o.Domain + ".API."
	case o.APIPrefix != "":
		return o.APIPrefix + "."
	}
	return jetstream.DefaultAPIPrefix
}
