package agui

import "encoding/json"

// Role says who a message is from.
type Role string

// The roles of the protocol.
const (
	RoleDeveloper Role = "developer"
	RoleSystem    Role = "system"
	RoleAssistant Role = "assistant"
	RoleUser      Role = "user"
	RoleTool      Role = "tool"
	RoleActivity  Role = "activity"
	RoleReasoning Role = "reasoning"
)

// Message is one message of a thread. The concrete types are values, not
// pointers: [DeveloperMessage], [SystemMessage], [AssistantMessage],
// [UserMessage], [ToolMessage], [ActivityMessage] and [ReasoningMessage]. Each
// encodes with its "role"; they are decoded as part of a [RunAgentInput].
type Message interface {
	// MessageRole is the role that the message's type stands for.
	MessageRole() Role
	// MessageID is unique in the thread.
	MessageID() string
}

// MessageBase holds what most messages may have. Empty is absent.
type MessageBase struct {
	ID string `json:"id"`
	// EncryptedValue is a provider's own; it is stored and given back.
	EncryptedValue string   `json:"encryptedValue,omitempty"`
	Metadata       Metadata `json:"metadata,omitempty"`
	// SubagentRunID says which subagent owns the message.
	SubagentRunID string `json:"subagentRunId,omitempty"`
}

// DeveloperMessage is an application's instruction.
type DeveloperMessage struct {
	MessageBase
	Name    string `json:"name,omitempty"`
	Content string `json:"content"`
}

// SystemMessage is a system's instruction.
type SystemMessage struct {
	MessageBase
	Name    string `json:"name,omitempty"`
	Content string `json:"content"`
}

// AssistantMessage is what an agent said, and the calls it made.
type AssistantMessage struct {
	MessageBase
	Name string `json:"name,omitempty"`
	// Content is nil when the agent said nothing.
	Content   *string    `json:"content,omitempty"`
	ToolCalls []ToolCall `json:"toolCalls,omitempty"`
}

// UserMessage is what a person sent.
type UserMessage struct {
	MessageBase
	Name    string  `json:"name,omitempty"`
	Content Content `json:"content"`
}

// ToolMessage answers a call. It is what a [ToolCallResult] becomes in a
// history, and, for a tool that the application runs itself, what the next
// run's input brings.
type ToolMessage struct {
	MessageBase
	ToolCallID string  `json:"toolCallId"`
	Content    Content `json:"content"`
	// Error says why the tool failed; it stands beside Content, so that a
	// partial result survives. Empty is absent: the tool did not fail.
	Error string `json:"error,omitempty"`
}

// ActivityMessage is progress in its place among the messages. Clients do not
// send it back.
type ActivityMessage struct {
	ID            string          `json:"id"`
	ActivityType  string          `json:"activityType"`
	Content       json.RawMessage `json:"content"`
	Metadata      Metadata        `json:"metadata,omitempty"`
	SubagentRunID string          `json:"subagentRunId,omitempty"`
}

// ReasoningMessage is a span of an agent's reasoning.
type ReasoningMessage struct {
	MessageBase
	Content string `json:"content"`
}

// MessageRole implements [Message].
func (DeveloperMessage) MessageRole() Role { return RoleDeveloper }

// MessageRole implements [Message].
func (SystemMessage) MessageRole() Role { return RoleSystem }

// MessageRole implements [Message].
func (AssistantMessage) MessageRole() Role { return RoleAssistant }

// MessageRole implements [Message].
func (UserMessage) MessageRole() Role { return RoleUser }

// MessageRole implements [Message].
func (ToolMessage) MessageRole() Role { return RoleTool }

// MessageRole implements [Message].
func (ActivityMessage) MessageRole() Role { return RoleActivity }

// MessageRole implements [Message].
func (ReasoningMessage) MessageRole() Role { return RoleReasoning }

// MessageID implements [Message].
func (m MessageBase) MessageID() string { return m.ID }

// MessageID implements [Message].
func (m ActivityMessage) MessageID() string { return m.ID }

// MarshalJSON writes the message with its role.
func (m DeveloperMessage) MarshalJSON() ([]byte, error) {
	type plain DeveloperMessage
	return lead("role", string(RoleDeveloper), plain(m))
}

// MarshalJSON writes the message with its role.
func (m SystemMessage) MarshalJSON() ([]byte, error) {
	type plain SystemMessage
	return lead("role", string(RoleSystem), plain(m))
}

// MarshalJSON writes the message with its role.
func (m AssistantMessage) MarshalJSON() ([]byte, error) {
	type plain AssistantMessage
	return lead("role", string(RoleAssistant), plain(m))
}

// MarshalJSON writes the message with its role.
func (m UserMessage) MarshalJSON() ([]byte, error) {
	type plain UserMessage
	return lead("role", string(RoleUser), plain(m))
}

// MarshalJSON writes the message with its role.
func (m ToolMessage) MarshalJSON() ([]byte, error) {
	type plain ToolMessage
	return lead("role", string(RoleTool), plain(m))
}

// MarshalJSON writes the message with its role.
func (m ActivityMessage) MarshalJSON() ([]byte, error) {
	type plain ActivityMessage
	return lead("role", string(RoleActivity), plain(m))
}

// MarshalJSON writes the message with its role.
func (m ReasoningMessage) MarshalJSON() ([]byte, error) {
	type plain ReasoningMessage
	return lead("role", string(RoleReasoning), plain(m))
}

// Message is the tool message that the result becomes: the same id, content
// and metadata. The event has no error member; whoever knows that the tool
// failed sets [ToolMessage.Error].
func (e ToolCallResult) Message() ToolMessage {
	return ToolMessage{
		MessageBase: MessageBase{ID: e.MessageID, Metadata: e.Metadata, SubagentRunID: e.SubagentRunID},
		ToolCallID:  e.ToolCallID,
		Content:     e.Content,
	}
}

// ToolCall is a call whose arguments are complete: as an assistant message
// holds it, and as an [Assembler] puts it together from a stream. The arguments
// are text and may be no JSON: whoever runs the call decides what that means.
//
// Its JSON is the protocol's {id, type, function, …}. There the message around
// it says which message and which subagent it belongs to.
type ToolCall struct {
	ID        string
	Name      string
	Arguments string
	// ParentMessageID is the id of the message that carries the call; in a
	// stream it may be empty, and a client then makes a message whose id is
	// the call's own.
	ParentMessageID string
	SubagentRunID   string
	EncryptedValue  string
	// Metadata is merged from the call's events, key by key, the last one
	// wins.
	Metadata Metadata
	// Reopened says that the call had ended before and was opened again: the
	// Arguments are those of both times. Whoever acted on the first end must
	// not act again.
	Reopened bool
}

// callFunction is the inner object of a call on the wire.
type callFunction struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// callShape is a call on the wire.
type callShape struct {
	ID             string       `json:"id"`
	Type           string       `json:"type"`
	Function       callFunction `json:"function"`
	EncryptedValue string       `json:"encryptedValue,omitempty"`
	Metadata       Metadata     `json:"metadata,omitempty"`
}

// MarshalJSON writes the call as an assistant message holds it.
func (c ToolCall) MarshalJSON() ([]byte, error) {
	return marshal(callShape{c.ID, "function", callFunction{c.Name, c.Arguments}, c.EncryptedValue, c.Metadata})
}

// UnmarshalJSON reads a call of an assistant message; it does not judge. Bytes
// from outside are for [DecodeInput].
func (c *ToolCall) UnmarshalJSON(data []byte) error {
	var w callShape
	if err := json.Unmarshal(data, &w); err != nil {
		return err
	}
	*c = ToolCall{ID: w.ID, Name: w.Function.Name, Arguments: w.Function.Arguments, EncryptedValue: w.EncryptedValue, Metadata: w.Metadata}
	return nil
}
